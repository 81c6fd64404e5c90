-- What a text is looked for in: each letter as it is shown, with its secrets masked (stores/sqlite/texts.py). A row's number
-- is its letter's seq. Made from `unsearched` after the letter is recorded, so that recording does not wait for it.
CREATE VIRTUAL TABLE searchable USING fts5(text, tokenize = 'trigram');

CREATE TABLE unsearched (
    seq            INTEGER PRIMARY KEY   -- letters whose text is still to be made
);
INSERT INTO unsearched SELECT seq FROM letters;

-- By which rules the texts were made: one row, a fingerprint of what is masked.
CREATE TABLE searchable_rules (
    rules          TEXT    NOT NULL
);
INSERT INTO searchable_rules VALUES ('');

-- New letters are put there by whoever records them, a batch at once: a trigger for each costs recording a fifth.
CREATE TRIGGER letters_searched_anew AFTER UPDATE OF body, error_message, document ON letters BEGIN
    INSERT OR IGNORE INTO unsearched VALUES (new.seq);
END;

CREATE TRIGGER letters_not_searched AFTER DELETE ON letters BEGIN
    DELETE FROM searchable WHERE rowid = old.seq;
    DELETE FROM unsearched WHERE seq = old.seq;
END;
