-- Texts of letters that have not changed since they were made, nor are gone, nor were written by another.
WITH done AS (
    DELETE FROM {schema}.unsearched AS u USING unnest(%(ids)s::text[], %(marks)s::bigint[]) AS d (id, mark)
    WHERE u.id = d.id AND u.mark = d.mark RETURNING u.id
)
INSERT INTO {schema}.texts (id, text)
SELECT m.id, m.text FROM unnest(%(ids)s::text[], %(texts)s::text[]) AS m (id, text) JOIN done USING (id)
ON CONFLICT (id) DO UPDATE SET text = excluded.text;
