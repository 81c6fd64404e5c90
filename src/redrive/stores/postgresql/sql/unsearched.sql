-- The newest first: they are what people look for.
SELECT u.mark, {columns} FROM {schema}.unsearched AS u JOIN {schema}.letters AS l ON l.id = u.id
ORDER BY u.mark DESC LIMIT %(limit)s;
