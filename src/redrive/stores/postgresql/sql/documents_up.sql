-- The documents of a kind, ids ascending, behind one if that is given: the primary key as it is.
SELECT id, version, body::text FROM {schema}.documents
WHERE kind = %(kind)s AND id > coalesce(%(after)s::text, '') ORDER BY id LIMIT %(limit)s;
