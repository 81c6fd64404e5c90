-- The documents of a kind, ids descending, behind one if that is given: the primary key read backwards.
SELECT id, version, body::text FROM {schema}.documents
WHERE kind = %(kind)s AND (%(after)s::text IS NULL OR id < %(after)s::text) ORDER BY id DESC LIMIT %(limit)s;
