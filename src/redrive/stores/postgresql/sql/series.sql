-- What is summed up, by the primary key, and what is not yet, as it came: one statement, so that nothing is in both.
SELECT s.at, s.{column}, sum(s.count)::bigint, NULL::bytea FROM {schema}.series AS s
WHERE s.step = %(step)s AND s.group_id = ANY(%(groups)s::text[]) AND s.at >= %(since)s AND s.at < %(until)s{narrower}
GROUP BY 1, 2
UNION ALL SELECT NULL, NULL, NULL, c.counts FROM {schema}.counted AS c;
