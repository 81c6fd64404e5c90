-- The largest groups, counted from the letters themselves: for what the counters do not know (tenant, text, time).
WITH counted AS (
    SELECT l.group_id, l.source, l.state, count(*) AS count FROM {schema}.letters AS l
    WHERE {where} GROUP BY 1, 2, 3
), sizes AS (
    SELECT group_id, sum(count) AS count FROM counted GROUP BY 1
), spans AS (
    SELECT t.group_id, min(t.first_at) AS first_at, max(t.last_at) AS last_at
    FROM {schema}.tallies AS t JOIN sizes AS c ON c.group_id = t.group_id
    GROUP BY 1, c.count ORDER BY {order} DESC, 1 LIMIT %(limit)s OFFSET %(skip)s
)
SELECT g.id, g.error_type, g.message, g.category, s.first_at, s.last_at, c.source, c.state, c.count
FROM spans AS s JOIN {schema}.groups AS g ON g.id = s.group_id JOIN counted AS c ON c.group_id = s.group_id;
