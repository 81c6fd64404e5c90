-- How the messages of a source stand, in the order they were sent, without leasing any. The attempt is the one that is being
-- made, or the next. Indexes: it reads the source, from `after` on.
SELECT q.id,
    CASE WHEN q.lease IS NOT NULL AND (q.until > now_.at OR NOT q.begun) THEN q.attempt ELSE q.attempt + 1 END,
    true, q.lapsed, q.priority, q.enqueued_at, q.body, q.rest, q.failures, q.place,
    stands.state, CASE stands.state WHEN 'leased' THEN q.until WHEN 'delayed' THEN q.due END - now_.at, q.lease
FROM {schema}.queue q
CROSS JOIN (SELECT {schema}.queue_now() AS at) AS now_
CROSS JOIN LATERAL (SELECT CASE
    WHEN q.lease IS NOT NULL AND q.until > now_.at THEN 'leased'
    WHEN q.waits AND q.due > now_.at THEN 'delayed'
    ELSE 'ready' END AS state) AS stands
WHERE q.source = (SELECT s.no FROM {schema}.queue_sources s WHERE s.name = %(source)b)
  AND q.place > %(after)s AND (%(state)s::text IS NULL OR stands.state = %(state)s)
ORDER BY q.place LIMIT %(limit)s
