-- The largest groups, from the counters: no letter is read. `tallies` is read once to find them, and by its primary key to
-- tell what is in them.
WITH largest AS (
    SELECT l.group_id, sum(l.count) FILTER (WHERE {where}) AS total, min(l.first_at) AS first_at, max(l.last_at) AS last_at
    FROM {schema}.tallies AS l GROUP BY 1 HAVING sum(l.count) FILTER (WHERE {where}) > 0
    ORDER BY {order} DESC, 1 LIMIT %(limit)s OFFSET %(skip)s
)
SELECT g.id, g.error_type, g.message, g.category, s.first_at, s.last_at, c.source, c.state, c.count
FROM largest AS s JOIN {schema}.groups AS g ON g.id = s.group_id CROSS JOIN LATERAL (
    SELECT l.source, l.state, sum(l.count)::bigint AS count FROM {schema}.tallies AS l
    WHERE l.group_id = s.group_id AND {where} GROUP BY 1, 2 HAVING sum(l.count) > 0) AS c;
