-- End the pause of a source; who waits looks again. Returns it, if there was one that was not over.
-- Indexes: queue_sources_name_key.
WITH before AS (
    SELECT s.no, s.pause, coalesce(s.paused_until > {schema}.queue_now(), true) AS holds
    FROM {schema}.queue_sources s WHERE s.name = %(source)b AND s.paused FOR UPDATE),
ended AS (
    UPDATE {schema}.queue_sources s SET paused = false, pause = NULL, paused_until = NULL
    FROM before WHERE s.no = before.no
    RETURNING s.no)
SELECT before.pause, before.holds, pg_notify('{schema}', 'queue:' || ended.no)
FROM before JOIN ended ON ended.no = before.no
