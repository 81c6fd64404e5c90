-- Write a document that is not there; no row if it is.
INSERT INTO {schema}.documents (kind, id, version, body) VALUES (%(kind)s, %(id)s, 1, %(body)s)
ON CONFLICT DO NOTHING RETURNING version;
