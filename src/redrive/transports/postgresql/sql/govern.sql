-- migrations/0009-sources.sql
SELECT {schema}.queue_govern(%(source)b, %(fair)s, %(weights)s::jsonb, %(base)s, %(increment)s, %(urgent)s)
