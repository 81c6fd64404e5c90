-- The letters' statements. Parameters by name; lists come as JSON arrays. `{where}` is built from a Query.

-- name: insert
INSERT INTO letters (id, state, category, source, group_id, created_at, updated_at, next_retry_at, expires_at,
                     priority, owner, lease_until, transport, tenant, message_id, error_type, error_message, code,
                     key, correlation_id, retries, resends, replay, archived_from, body, document)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING;

-- name: last
-- What is inserted after this, in the same transaction, has a larger seq.
SELECT coalesce(max(seq), 0) FROM letters;

-- name: unsearched
INSERT OR IGNORE INTO unsearched (seq) SELECT seq FROM letters WHERE seq > ?;

-- name: known
SELECT id FROM letters WHERE id IN (SELECT value FROM json_each(:ids)) AND seq <= :before;

-- name: rejoin
UPDATE letters SET state = :state, category = :category, group_id = :group_id, created_at = :created_at,
       updated_at = :updated_at,
       next_retry_at = :next_retry_at, expires_at = :expires_at, owner = NULL, lease_until = NULL,
       transport = :transport, error_type = :error_type, error_message = :error_message, code = :code,
       retries = :retries, replay = :replay, body = :body, priority = :priority, tenant = :tenant, key = :key,
       correlation_id = :correlation_id, archived_from = :archived_from, document = :document
WHERE id = :id;

-- name: count_new
INSERT INTO tallies (group_id, source, state, category, count) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET count = count + excluded.count;

-- name: add_group
INSERT INTO groups (id, error_type, message, category, first_at, last_at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET first_at = min(first_at, excluded.first_at), last_at = max(last_at, excluded.last_at);

-- name: depend_no_more
DELETE FROM dependencies WHERE letter_id = ?;

-- name: depend
INSERT OR IGNORE INTO dependencies (letter_id, message_id) VALUES (?, ?);

-- name: get
SELECT {columns} FROM letters WHERE id = :id;

-- name: count
SELECT count(*) FROM letters WHERE {where};

-- name: transports
-- A loose index scan: the transports in use, however many letters.
WITH RECURSIVE used (name) AS (
    SELECT min(transport) FROM letters
    UNION ALL
    SELECT (SELECT min(transport) FROM letters WHERE transport > used.name) FROM used WHERE used.name IS NOT NULL
)
SELECT name FROM used WHERE name IS NOT NULL;

-- name: count_tallies
SELECT coalesce(sum(count), 0) FROM tallies WHERE {where};

-- name: groups
-- From the counters: as many rows as there are groups, however many letters.
SELECT g.id, g.error_type, g.message, g.category, g.first_at, g.last_at, t.state, t.count, t.sources
FROM (SELECT group_id, state, sum(count) AS count, json_group_array(DISTINCT source) AS sources FROM tallies
      WHERE count > 0 AND {where} AND group_id IN (
          SELECT group_id FROM tallies WHERE count > 0 AND {where}
          GROUP BY group_id ORDER BY {order} DESC, group_id LIMIT :limit OFFSET :skip)
      GROUP BY group_id, state) AS t
JOIN groups AS g ON g.id = t.group_id;

-- name: groups_scan
-- For what the counters do not know (tenant, text, time): counted from the letters themselves.
SELECT g.id, g.error_type, g.message, g.category, g.first_at, g.last_at, t.state, t.count, t.sources
FROM (SELECT group_id, state, count(*) AS count, json_group_array(DISTINCT source) AS sources FROM letters
      WHERE {where} GROUP BY group_id, state) AS t
JOIN groups AS g ON g.id = t.group_id;

-- name: group_end
-- The letter at one end of a group, from its index.
SELECT document FROM letters WHERE group_id = :id ORDER BY created_at {way}, seq {way} LIMIT 1;

-- name: tallies
SELECT source, state, category, sum(count) FROM tallies WHERE count > 0 AND {where} GROUP BY source, state, category;

-- name: tallies_scan
-- For what the counters do not know: counted from the letters themselves.
SELECT source, state, category, count(*) FROM letters WHERE {where} GROUP BY source, state, category;

-- name: sources
SELECT DISTINCT source FROM tallies;

-- name: tenants
-- A loose index scan: a step in the index for each tenant, however many letters.
WITH RECURSIVE named (tenant) AS (
    SELECT min(tenant) FROM letters WHERE tenant IS NOT NULL
    UNION ALL
    SELECT (SELECT min(tenant) FROM letters WHERE tenant > named.tenant AND tenant IS NOT NULL)
    FROM named WHERE named.tenant IS NOT NULL
)
SELECT tenant FROM named WHERE tenant IS NOT NULL;

-- name: due
-- A loose index scan: the priorities in use among the letters of a source that wait for a retry.
WITH RECURSIVE used (priority) AS (
    SELECT min(priority) FROM letters INDEXED BY letters_due
    WHERE source = :only_source AND next_retry_at IS NOT NULL
    UNION ALL
    SELECT (SELECT min(priority) FROM letters INDEXED BY letters_due
            WHERE source = :only_source AND priority > used.priority AND next_retry_at IS NOT NULL)
    FROM used WHERE used.priority IS NOT NULL
)
SELECT priority FROM used WHERE priority IS NOT NULL;

-- name: claimable
-- Most letters have no parents: the sources are listed only for those that have.
SELECT {columns} FROM letters
WHERE {where}
  AND state IN (SELECT value FROM json_each(:from))
  AND (state <> :to OR owner = :me)
  AND (NOT EXISTS (SELECT 1 FROM dependencies WHERE letter_id = letters.id) OR NOT EXISTS (
      SELECT 1 FROM dependencies AS d, (SELECT DISTINCT source FROM tallies) AS s
      JOIN letters AS a ON a.id = letter_id(s.source, d.message_id)
      WHERE d.letter_id = letters.id AND a.state NOT IN ('resolved', 'archived')))
ORDER BY priority, next_retry_at, seq
LIMIT :limit;

-- name: claim
UPDATE letters SET state = :to, owner = :me, lease_until = :until, updated_at = :now,
       resends = resends + (state <> :to), retries = retries + (state <> :to AND :to = 'retrying'),
       replay = coalesce(:replay, replay)
WHERE seq IN (SELECT value FROM json_each(:seqs));

-- name: move
-- From retrying or replaying to pending or exhausted: the claim is undone, nothing was sent.
UPDATE letters SET state = :to, updated_at = :now, owner = NULL, lease_until = NULL,
       next_retry_at = CASE WHEN :to IN ('pending', 'exhausted') AND state IN ('retrying', 'replaying')
                            THEN next_retry_at END,
       resends = resends - (:to IN ('pending', 'exhausted') AND state IN ('retrying', 'replaying')),
       retries = retries - (:to IN ('pending', 'exhausted') AND state = 'retrying'),
       archived_from = CASE WHEN :to <> 'archived' THEN NULL WHEN state = 'archived' THEN archived_from
                            WHEN state IN ('retrying', 'replaying') THEN 'exhausted' ELSE state END
WHERE id IN (SELECT value FROM json_each(:ids))
  AND state IN (SELECT value FROM json_each(:expect))
  AND (:owner IS NULL OR owner = :owner)
RETURNING id, source, category;

-- name: confirm
-- A move to the state that it has: what was claimed is on its way. The state is not written, so that no index of it is.
UPDATE letters SET updated_at = :now, owner = NULL, lease_until = NULL, next_retry_at = NULL, archived_from = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND +state = :to AND (:owner IS NULL OR owner = :owner)
RETURNING id, source, category;

-- name: prune
DELETE FROM letters WHERE seq IN ({seqs}) RETURNING id;

-- name: note_frozen
-- Once for each replay, a selection of nothing included: what comes later was not approved.
INSERT OR IGNORE INTO documents (kind, id, version, body) VALUES ('frozen', ?, 1, '{}');

-- name: freeze
-- `{letters}` are the arms of a query, each read from an index in order of time; to sort a million takes 100 MB.
INSERT OR IGNORE INTO ledger (replay, letter_id, status, at)
SELECT :replay, id, 'selected', :now FROM ({letters} ORDER BY created_at, seq);

-- name: freeze_arm
SELECT id, created_at, seq FROM letters WHERE {where} AND +state IN ('pending', 'exhausted', 'sent');

-- name: mark
-- An outcome that is known is not overwritten by `sent`, nor by what a repeat of the same batch says.
INSERT INTO ledger (replay, letter_id, status, at, note) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (replay, letter_id) DO UPDATE SET status = excluded.status, at = excluded.at, note = excluded.note
WHERE excluded.status IN ('resolved', 'failed') OR status IN ('selected');

-- name: mark_sent
-- As `mark`, of many letters at once.
INSERT INTO ledger (replay, letter_id, status, at, note)
SELECT :replay, value, 'sent', :at, :note FROM json_each(:letters) WHERE 1
ON CONFLICT (replay, letter_id) DO UPDATE SET status = excluded.status, at = excluded.at, note = excluded.note
WHERE status IN ('selected');

-- name: keep_version
-- As a crash may have left it, it is written again.
INSERT OR REPLACE INTO versions (letter_id, number, facts, body) VALUES (?, ?, ?, ?);

-- name: adopt_version
INSERT OR IGNORE INTO versions (letter_id, number, facts, body)
SELECT :letter, :number, :facts, :body WHERE EXISTS (SELECT 1 FROM letters WHERE id = :letter);

-- name: versions
SELECT facts FROM versions WHERE letter_id = ? ORDER BY number;

-- name: version
SELECT facts, body FROM versions WHERE letter_id = ? AND number = ?;

-- name: of_letter
SELECT replay, status, at, note FROM ledger
WHERE letter_id = :letter AND replay IN (SELECT value FROM json_each(:replays));
