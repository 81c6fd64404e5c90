-- Note that a migration was made, in its own transaction.
INSERT INTO {schema}.migrations (component, version) VALUES (%(component)s, %(version)s);
