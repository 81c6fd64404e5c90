-- migrations/0008-leases.sql
SELECT {schema}.queue_begin(%b, %b, %b::bigint[], %b::integer[])
