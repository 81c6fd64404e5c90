-- One letter, by its primary key.
SELECT {columns} FROM {schema}.letters AS l WHERE l.id = %(id)s;
