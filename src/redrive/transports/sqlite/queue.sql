-- The embedded queue's statements. Parameters by name; lists come as JSON arrays.

-- name: send
INSERT INTO queue (source, id, priority, visible_at, attempt, enqueued_at, expires_at, body, rest, failures)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (source, id) DO NOTHING;

-- name: send_back
-- A copy that a dead worker could not ack is still there: it stays where it is, and becomes what is sent back. Whoever
-- had it has it no more: a late ack was meant for the copy.
INSERT INTO queue (source, id, priority, visible_at, attempt, enqueued_at, expires_at, body, rest, failures)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (source, id) DO UPDATE
SET attempt = excluded.attempt, expires_at = excluded.expires_at, rest = excluded.rest, failures = NULL,
    lapsed = lapsed OR lease IS NOT NULL, lease = NULL;

-- name: priorities
-- A loose index scan: one step for each priority in use, however many messages there are. None while it is paused.
WITH RECURSIVE used (priority) AS (
    SELECT min(priority) FROM queue WHERE source = :source
    UNION ALL
    SELECT (SELECT min(priority) FROM queue WHERE source = :source AND priority > used.priority)
    FROM used WHERE used.priority IS NOT NULL
)
SELECT priority FROM used
WHERE priority IS NOT NULL
  AND NOT EXISTS (
      SELECT 1 FROM documents
      WHERE kind = 'queue-pause' AND id = :source AND ifnull(json_extract(body, '$.ends') > :now, 1)
  )
  AND EXISTS (SELECT 1 FROM queue WHERE source = :source AND priority = used.priority AND visible_at <= :now);

-- name: ready
SELECT seq, lapsed OR lease IS NOT NULL, id, priority, attempt, enqueued_at, expires_at, body, rest, failures
FROM queue
WHERE source = :source AND priority = :priority AND visible_at <= :now
ORDER BY visible_at, seq
LIMIT :limit;

-- name: lease
UPDATE queue SET visible_at = :until, lapsed = lapsed OR lease IS NOT NULL, lease = :lease, attempt = attempt + 1
WHERE seq IN (SELECT value FROM json_each(:seqs));

-- name: extend
UPDATE queue SET visible_at = :until
WHERE seq IN (SELECT value FROM json_each(:seqs)) AND lease = :lease;

-- name: done
DELETE FROM queue
WHERE seq IN (SELECT value FROM json_each(:seqs)) AND lease = :lease;

-- name: lost
-- Those that somebody else has, or had, since.
SELECT value FROM json_each(:seqs)
WHERE NOT EXISTS (SELECT 1 FROM queue WHERE seq = json_each.value AND lease = :lease);

-- name: retry
UPDATE queue SET lease = NULL, visible_at = :at, failures = :failures
WHERE seq = :seq AND lease = :lease;

-- name: release
-- As if it had not been received.
UPDATE queue SET lease = NULL, visible_at = :at, attempt = attempt - 1
WHERE seq = :seq AND lease = :lease;

-- name: next
SELECT min(visible_at) FROM queue WHERE source = :source;

-- name: find
-- Without leasing it.
SELECT seq, lapsed, id, priority, max(attempt - 1, 0), enqueued_at, expires_at, body, rest, failures
FROM queue
WHERE source = :source
  AND (:ids IS NULL OR id IN (SELECT value FROM json_each(:ids)))
  AND (:containing IS NULL OR instr(body, :containing))
  AND (:since IS NULL OR enqueued_at >= :since)
ORDER BY seq
LIMIT :limit;

-- name: listing
-- As it stands: ready, delayed or leased. What is leased has counted its attempt.
SELECT seq, lapsed, id, priority, attempt - (visible_at > :now AND lease IS NOT NULL), enqueued_at, expires_at, body, rest,
       failures, visible_at, lease
FROM queue
WHERE source = :source AND seq > :after
  AND CASE :state
          WHEN 'ready' THEN visible_at <= :now
          WHEN 'delayed' THEN visible_at > :now AND lease IS NULL
          WHEN 'leased' THEN visible_at > :now AND lease IS NOT NULL
          ELSE 1
      END
ORDER BY seq
LIMIT :limit;

-- name: pause
-- A pause is a document of the file: `paused` is what people are shown, `ends` its end in microseconds, or null. The
-- first one stays, unless it is over.
INSERT INTO documents (kind, id, version, body) VALUES ('queue-pause', :source, 1, :body)
ON CONFLICT (kind, id) DO UPDATE SET version = version + 1, body = excluded.body
WHERE ifnull(json_extract(documents.body, '$.ends') <= :now, 0);

-- name: resume
DELETE FROM documents WHERE kind = 'queue-pause' AND id = :source;

-- name: pauses
SELECT body FROM documents
WHERE kind = 'queue-pause' AND (:source IS NULL OR id = :source) AND ifnull(json_extract(body, '$.ends') > :now, 1)
ORDER BY id;

-- name: depths
SELECT source,
       sum(visible_at <= :now),
       sum(visible_at > :now AND lease IS NULL),
       sum(visible_at > :now AND lease IS NOT NULL)
FROM queue GROUP BY source;

-- name: heal_ready
-- What was not received yet, was not sent with a delay (whose failures are empty, and not NULL) and is not visible was
-- sent by a clock ahead of ours.
UPDATE queue SET visible_at = :now WHERE visible_at > :now AND lease IS NULL AND failures IS NULL;

-- name: heal_leases
-- No lease is longer than the longest: one that seems to be was taken under a clock ahead of ours.
UPDATE queue SET visible_at = :until WHERE lease IS NOT NULL AND visible_at > :until;
