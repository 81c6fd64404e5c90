-- How the tenants of a fair source fare, the last served first. Indexes: queue_tenants_pkey, queue_turns.
SELECT t.name, t.total, t.last_at,
    CASE WHEN t.ring_turn IS NULL THEN 0 ELSE s.turn - t.ring_turn END,
    greatest(s.urgent, s.base - CASE WHEN t.ring_turn IS NULL THEN 0 ELSE s.turn - t.ring_turn END * s.increment),
    CASE WHEN t.tenant = s.last THEN s.streak ELSE 0 END,
    (SELECT count(*) FROM {schema}.queue q
     WHERE q.source = t.source AND q.tenant = t.tenant AND NOT q.waits
       AND (q.until IS NULL OR q.until <= {schema}.queue_now()))
FROM {schema}.queue_tenants t JOIN {schema}.queue_sources s ON s.no = t.source
WHERE s.name = %(source)b AND s.fair
ORDER BY t.last_at DESC, t.seen_at DESC, t.tenant LIMIT %(limit)s
