-- migrations/0003-send.sql
SELECT {schema}.queue_send(
    %b, %b, %b, %b::integer[], %b::bigint[], %b::integer[], %b::bigint[], %b::bigint[], %b, %b::bigint[], %b, %b)
