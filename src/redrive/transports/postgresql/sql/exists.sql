-- Whether a message is there under that lease; waits for a transaction that is about to delete it. Indexes: queue_ids.
SELECT 1 FROM {schema}.queue q
WHERE q.source = (SELECT s.no FROM {schema}.queue_sources s WHERE s.name = %b) AND q.id = %b AND q.lease = %b::bigint
FOR UPDATE
