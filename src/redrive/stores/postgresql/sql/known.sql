-- Those of a batch that are there already, locked until the batch is written; in one order for everybody, so that two
-- batches do not wait for each other. By the primary key.
SELECT {columns} FROM {schema}.letters AS l WHERE l.id = ANY(%(ids)s::text[]) ORDER BY l.id FOR UPDATE;
