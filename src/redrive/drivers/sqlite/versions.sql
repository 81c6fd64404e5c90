-- What the messages of letters were before they were edited, and where an archived letter came from.
CREATE TABLE versions (
    letter_id      TEXT    NOT NULL,
    number         INTEGER NOT NULL,
    facts          BLOB    NOT NULL,    -- msgpack: who, when, why, the headers
    body           BLOB    NOT NULL,
    PRIMARY KEY (letter_id, number)
);

ALTER TABLE letters ADD COLUMN archived_from TEXT;

CREATE TRIGGER versions_removed AFTER DELETE ON letters BEGIN
    DELETE FROM versions WHERE letter_id = old.id;
END;
