-- migrations/0003-send.sql
SELECT {schema}.queue_sent(%b::integer, %b, %b::bigint[], %b)
