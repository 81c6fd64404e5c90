-- A known letter after it died again, by its primary key; it was locked when it was read (known.sql).
UPDATE {schema}.letters SET ({inserted}) = ({values}) WHERE id = %(id)s;
