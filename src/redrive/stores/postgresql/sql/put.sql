-- Write a document, whatever its version is.
INSERT INTO {schema}.documents AS d (kind, id, version, body) VALUES (%(kind)s, %(id)s, 1, %(body)s)
ON CONFLICT (kind, id) DO UPDATE SET version = d.version + 1, body = excluded.body
RETURNING version;
