-- What a source holds, without leasing it. Indexes: queue_ids, where ids are given; otherwise it reads the source.
SELECT q.id, CASE WHEN q.lease IS NULL THEN q.attempt + 1 ELSE q.attempt END, true, q.lapsed, q.priority, q.enqueued_at,
    q.body, q.rest, NULL::bytea, q.place
FROM {schema}.queue q
WHERE q.source = (SELECT s.no FROM {schema}.queue_sources s WHERE s.name = %(source)b)
  AND (%(ids)b::bytea[] IS NULL OR q.id = ANY (%(ids)b))
  AND (%(containing)b::bytea IS NULL OR position(%(containing)b::bytea IN q.body) > 0)
  AND (%(since)s::bigint IS NULL OR q.enqueued_at >= %(since)s)
ORDER BY q.place LIMIT %(limit)s
