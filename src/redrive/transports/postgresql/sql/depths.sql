-- How full each source is: every message is ready, delayed or leased. Reads the whole queue.
SELECT s.name,
    count(*) FILTER (WHERE CASE WHEN q.waits THEN q.due <= n.now ELSE q.until IS NULL OR q.until <= n.now END),
    count(*) FILTER (WHERE q.waits AND q.due > n.now),
    count(*) FILTER (WHERE NOT q.waits AND q.until > n.now)
FROM (SELECT {schema}.queue_now() AS now) n, {schema}.queue q JOIN {schema}.queue_sources s ON s.no = q.source
GROUP BY s.name
