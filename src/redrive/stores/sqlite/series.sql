-- The statements of series. Parameters by name; lists come as JSON arrays.

-- name: count
INSERT INTO counted (counts) VALUES (?);

-- name: counted
SELECT seq, counts FROM counted ORDER BY seq LIMIT :limit;

-- name: all_counted
SELECT counts FROM counted;

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
