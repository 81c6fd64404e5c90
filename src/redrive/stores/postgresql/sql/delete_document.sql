-- Delete a document, by the primary key, and only of that version, if one is given; a row if it was deleted.
DELETE FROM {schema}.documents
WHERE kind = %(kind)s AND id = %(id)s AND version = coalesce(%(expect)s::bigint, version)
RETURNING version;
