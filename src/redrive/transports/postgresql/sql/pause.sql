-- Hold a source for all workers, or let it go on; who waits looks again. Indexes: queue_sources_name_key.
WITH held AS (
    INSERT INTO {schema}.queue_sources (name, paused) VALUES (%(source)b, %(paused)s)
    ON CONFLICT (name) DO UPDATE SET paused = excluded.paused RETURNING no)
SELECT pg_notify('{schema}', 'queue:' || no) FROM held
