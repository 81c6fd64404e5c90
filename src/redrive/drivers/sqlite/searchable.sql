-- What a text is looked for in: each letter as it is shown, with its secrets masked (stores/sqlite/texts.py). A row's number
-- is its letter's seq. Made from `unsearched` after the letter is recorded, so that recording does not wait for it.
-- ASCII letters of the text are in lower case already; the index is to take no other characters for the same, so that what
-- it finds needs no second look.
CREATE VIRTUAL TABLE searchable USING fts5(text, tokenize = 'trigram case_sensitive 1');

CREATE TABLE unsearched (
    seq            INTEGER PRIMARY KEY,  -- letters whose text is still to be made
    mark           INTEGER NOT NULL DEFAULT (random())  -- another one whenever the letter changes: its text is made meanwhile
);
INSERT INTO unsearched (seq) SELECT seq FROM letters;

-- By which rules the texts were made: one row, a fingerprint of what is masked.
CREATE TABLE searchable_rules (
    rules          TEXT    NOT NULL
);
INSERT INTO searchable_rules VALUES ('');

-- New letters are put there by whoever records them, a batch at once: a trigger for each costs recording a fifth.
CREATE TRIGGER letters_searched_anew AFTER UPDATE OF body, error_message, document ON letters BEGIN
    INSERT OR REPLACE INTO unsearched (seq) VALUES (new.seq);
END;

CREATE TRIGGER letters_not_searched AFTER DELETE ON letters BEGIN
    DELETE FROM searchable WHERE rowid = old.seq;
    DELETE FROM unsearched WHERE seq = old.seq;
END;
