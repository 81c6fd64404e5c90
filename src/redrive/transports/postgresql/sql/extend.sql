-- migrations/0008-leases.sql
SELECT {schema}.queue_extend(%b, %b, %b::bigint[], %b::integer[], %b::bigint)
