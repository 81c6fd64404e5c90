-- What the messages of letters were before they were edited, and where an archived letter came from.
CREATE TABLE {schema}.versions (
    letter_id      text     COLLATE "C" NOT NULL,
    number         bigint   NOT NULL,
    facts          bytea    NOT NULL,  -- msgpack: who, when, why, the headers
    body           bytea    NOT NULL,
    PRIMARY KEY (letter_id, number)
);

ALTER TABLE {schema}.letters ADD COLUMN archived_from text COLLATE "C";

CREATE FUNCTION {schema}.versions_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM {schema}.versions AS v USING before AS b WHERE v.letter_id = b.id;
    RETURN NULL;
END $$;

CREATE FUNCTION {schema}.versions_emptied() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM {schema}.versions;
    RETURN NULL;
END $$;

CREATE TRIGGER versions_removed AFTER DELETE ON {schema}.letters REFERENCING OLD TABLE AS before
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.versions_removed();
CREATE TRIGGER versions_emptied AFTER TRUNCATE ON {schema}.letters
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.versions_emptied();
