-- Pause a source for all workers, unless it is paused already; who waits looks again. Returns the pause that holds.
-- Indexes: queue_sources_name_key.
WITH held AS (
    INSERT INTO {schema}.queue_sources AS s (name, paused, pause, paused_until)
    VALUES (%(source)b, true, %(pause)b, {schema}.queue_now() + %(span)s::bigint)
    ON CONFLICT (name) DO UPDATE SET
        paused = true,
        pause = CASE WHEN s.paused AND coalesce(s.paused_until > {schema}.queue_now(), true)
            THEN s.pause ELSE excluded.pause END,
        paused_until = CASE WHEN s.paused AND coalesce(s.paused_until > {schema}.queue_now(), true)
            THEN s.paused_until ELSE excluded.paused_until END
    RETURNING s.no, s.pause)
SELECT pause, pg_notify('{schema}', 'queue:' || no) FROM held
