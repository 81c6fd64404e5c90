-- migrations/0006-fetch.sql
SELECT {schema}.queue_pause_of(%(source)b, %(most)s, %(span)s, %(to_the_end)s)
