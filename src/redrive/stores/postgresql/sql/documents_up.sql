-- The documents of a kind, ids ascending, behind one: the primary key as it is.
SELECT id, version, body::text FROM {schema}.documents
WHERE kind = %(kind)s AND id > %(after)s ORDER BY id LIMIT %(limit)s;
