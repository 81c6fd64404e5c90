-- migrations/0002-shared.sql
SELECT {schema}.queue_source(%b)
