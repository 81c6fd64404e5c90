-- The statements of the index of texts (drivers/sqlite/searchable.sql has its tables).

-- name: rules
SELECT rules FROM searchable_rules;

-- name: adopt
UPDATE searchable_rules SET rules = ?;

-- name: forget
DROP TABLE searchable;

-- name: begin_anew
CREATE VIRTUAL TABLE searchable USING fts5(text, tokenize = 'trigram');

-- name: all_anew
INSERT OR IGNORE INTO unsearched SELECT seq FROM letters;

-- name: left
SELECT count(*) FROM unsearched;

-- name: unsearched
-- The newest first: they are what people look for.
SELECT {columns} FROM letters WHERE seq IN (SELECT seq FROM unsearched ORDER BY seq DESC LIMIT :limit);

-- name: delete
DELETE FROM searchable WHERE rowid = ?;

-- name: insert
INSERT INTO searchable (rowid, text) VALUES (?, ?);

-- name: done
DELETE FROM unsearched WHERE seq = ?;

-- name: having
-- The index takes more letters for the same in another case than we do: ASCII only.
SELECT l.id FROM searchable AS s JOIN letters AS l ON l.seq = s.rowid
WHERE s.searchable MATCH :phrase AND instr(s.text, :text) > 0 LIMIT :limit;
