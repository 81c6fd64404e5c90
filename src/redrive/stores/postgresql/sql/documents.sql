-- The documents of a kind, ids descending: the primary key read backwards.
SELECT id, version, body::text FROM {schema}.documents WHERE kind = %(kind)s ORDER BY id DESC LIMIT %(limit)s;
