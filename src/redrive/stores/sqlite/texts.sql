-- The statements of the index of texts (drivers/sqlite/searchable.sql has its tables).

-- name: rules
SELECT rules FROM searchable_rules;

-- name: adopt
UPDATE searchable_rules SET rules = ?;

-- name: forget
DROP TABLE searchable;

-- name: begin_anew
CREATE VIRTUAL TABLE searchable USING fts5(text, tokenize = 'trigram case_sensitive 1');

-- name: all_anew
INSERT OR REPLACE INTO unsearched (seq) SELECT seq FROM letters;

-- name: left
SELECT count(*) FROM unsearched;

-- name: unsearched
-- The newest first: they are what people look for.
SELECT u.mark, {columns} FROM unsearched AS u JOIN letters AS l USING (seq) ORDER BY u.seq DESC LIMIT :limit;

-- name: done
-- None, if the letter has changed since its text was made.
DELETE FROM unsearched WHERE seq = ? AND mark = ?;

-- name: delete
DELETE FROM searchable WHERE rowid = ?;

-- name: insert
INSERT INTO searchable (rowid, text) VALUES (?, ?);

-- name: having
SELECT rowid FROM searchable WHERE searchable MATCH :phrase LIMIT :limit;

-- name: ids
SELECT id FROM letters WHERE seq IN (SELECT CAST(value AS INTEGER) FROM json_each(?));

-- name: count
SELECT count(*) FROM searchable WHERE searchable MATCH :phrase;

-- name: looked_at
-- Letters in order, and whether each has the text. `searchable_content` is where FTS5 keeps the texts: read by number, it
-- costs half of what the virtual table does.
SELECT o.created_at, o.seq, coalesce(instr((SELECT c0 FROM searchable_content WHERE id = o.seq), :text), 0) > 0
FROM ({ordered}) AS o;
