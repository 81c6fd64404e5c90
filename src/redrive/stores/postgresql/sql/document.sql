-- One document, by the primary key.
SELECT version, body::text FROM {schema}.documents WHERE kind = %(kind)s AND id = %(id)s;
