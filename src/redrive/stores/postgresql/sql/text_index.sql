-- A row if there is an index of what is searched (docs/how-to/postgresql.md).
SELECT 1 FROM pg_indexes
WHERE schemaname = %(schema)s AND tablename = 'letters' AND indexdef LIKE '%%USING gin%%haystack(%%' LIMIT 1;
