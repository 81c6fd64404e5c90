-- migrations/0007-settle.sql
SELECT id, token, instead FROM {schema}.queue_settle(
    %b, %b, %b::bigint[], %b::integer[], %b, %b::bigint[], %b::bigint[], %b, %b, %b::bigint, %b)
