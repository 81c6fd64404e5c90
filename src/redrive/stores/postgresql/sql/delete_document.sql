-- Delete a document, by the primary key; a row if there was one.
DELETE FROM {schema}.documents WHERE kind = %(kind)s AND id = %(id)s RETURNING version;
