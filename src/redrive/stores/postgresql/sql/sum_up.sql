-- Counts by bucket, in one order for everybody, so that two who sum up do not wait for each other.
INSERT INTO {schema}.series AS s (step, at, group_id, source, category, outcome, count)
SELECT * FROM unnest(%(steps)s::int[], %(ats)s::bigint[], %(groups)s::text[], %(sources)s::text[], %(categories)s::text[],
                     %(outcomes)s::text[], %(counts)s::bigint[]) AS n (step, at, group_id, source, category, outcome, count)
ORDER BY n.step, n.group_id COLLATE "C", n.at, n.source COLLATE "C", n.category COLLATE "C", n.outcome COLLATE "C"
ON CONFLICT (step, group_id, at, source, category, outcome) DO UPDATE SET count = s.count + excluded.count;
