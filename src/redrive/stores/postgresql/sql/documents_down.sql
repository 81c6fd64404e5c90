-- The same, behind one of them.
SELECT id, version, body::text FROM {schema}.documents
WHERE kind = %(kind)s AND id < %(after)s ORDER BY id DESC LIMIT %(limit)s;
