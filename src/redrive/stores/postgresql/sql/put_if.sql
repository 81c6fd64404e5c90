-- Write a document if it has that version; no row if not. Of two who ask at once the second finds another version.
UPDATE {schema}.documents SET version = version + 1, body = %(body)s
WHERE kind = %(kind)s AND id = %(id)s AND version = %(expect)s RETURNING version;
