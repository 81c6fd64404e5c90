-- A row if our schema is there: whether it has a table of migrations. The catalogue is read as a table, and not by
-- to_regclass, which may remember from before we had the lock (lock.sql) that there was none.
SELECT EXISTS (SELECT 1 FROM pg_class AS c WHERE c.relnamespace = n.oid AND c.relname = 'migrations')
FROM pg_namespace AS n WHERE n.nspname = %(schema)s;
