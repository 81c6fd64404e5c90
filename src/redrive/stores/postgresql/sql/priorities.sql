-- A loose scan of the index letters_due: the priorities in use among the letters of each source that wait for a retry, a
-- step in the index for each priority, however many letters.
SELECT s.source, u.priority
FROM unnest(%(sources)s::text[]) AS s (source) CROSS JOIN LATERAL (
    WITH RECURSIVE used (priority) AS (
        SELECT min(l.priority) FROM {schema}.letters AS l WHERE l.source = s.source AND l.next_retry_at IS NOT NULL
        UNION ALL
        SELECT (SELECT min(l.priority) FROM {schema}.letters AS l
                WHERE l.source = s.source AND l.priority > used.priority AND l.next_retry_at IS NOT NULL)
        FROM used WHERE used.priority IS NOT NULL)
    SELECT priority FROM used WHERE priority IS NOT NULL) AS u
ORDER BY u.priority, s.source;
