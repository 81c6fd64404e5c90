-- migrations/0010-within.sql
SELECT {schema}.queue_done_within(%b, %b, %b::bigint)
