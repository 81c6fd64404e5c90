-- The statements of series. Parameters by name; lists come as JSON arrays.

-- name: count
INSERT INTO counted (counts, hits) VALUES (?, ?);

-- name: counted
SELECT seq, counts, hits FROM counted ORDER BY seq LIMIT :limit;

-- name: all_counted
SELECT counts FROM counted;

-- name: all_hits
SELECT hits FROM counted WHERE hits IS NOT NULL;

-- name: hit
INSERT INTO hits (group_id, tenant, count) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count;

-- name: tenants_hit
SELECT tenant FROM hits WHERE group_id = ? AND count > 0 ORDER BY tenant LIMIT ?;

-- name: hits_of_tenant
SELECT count FROM hits WHERE group_id = ? AND tenant = ?;

-- name: summed_up
DELETE FROM counted WHERE seq <= :last;

-- name: left
SELECT count(*) FROM counted;

-- name: sum_up
INSERT INTO series (step, at, group_id, source, category, outcome, count) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET count = count + excluded.count;

-- name: read
-- By the primary key: a range of buckets of no group, or of each group that is named.
SELECT at, {name}, sum(count) FROM series
WHERE step = :step AND group_id IN (SELECT value FROM json_each(:groups)) AND at >= :since AND at < :until{narrower}
GROUP BY at, {name};

-- name: prune
DELETE FROM series WHERE step = :step AND at < :before;
