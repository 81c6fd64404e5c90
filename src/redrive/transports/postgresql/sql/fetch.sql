-- migrations/0006-fetch.sql
SELECT * FROM {schema}.queue_fetch(
    %(source)b, %(wanted)s, %(token)s, %(lease)s, %(at_once)s, %(by_key)s,
    %(most)s, %(span)s, %(adapts)s, %(to_the_end)s, %(in_a_row)s, %(priority)s, %(place)s)
