-- What a text is looked for in: each letter as it is shown, with its secrets masked (texts.py). Made from `unsearched` after
-- the letter is recorded, so that recording waits neither for redaction nor for the index.
CREATE TABLE {schema}.texts (
    id             text     COLLATE "C" PRIMARY KEY,  -- the letter's
    text           text     COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1,
        autovacuum_analyze_scale_factor = 0.05);

-- Its index, where the extension pg_trgm can be had; without, all texts are read for a search, and `redrive doctor` says so
-- (sql/index_texts.sql is the same, for when it can be had later).
DO $$
DECLARE home text;
BEGIN
    IF to_regclass('{schema}.texts_trigrams') IS NULL THEN
        CREATE EXTENSION IF NOT EXISTS pg_trgm;
        SELECT n.nspname INTO home FROM pg_opclass AS o JOIN pg_namespace AS n ON n.oid = o.opcnamespace
        WHERE o.opcname = 'gin_trgm_ops' LIMIT 1;
        LOCK TABLE {schema}.texts IN SHARE ROW EXCLUSIVE MODE;
        IF to_regclass('{schema}.texts_trigrams') IS NULL THEN
            EXECUTE format('CREATE INDEX texts_trigrams ON {schema}.texts USING gin (text %I.gin_trgm_ops)', home);
        END IF;
    END IF;
EXCEPTION WHEN OTHERS THEN
    RAISE NOTICE 'no index of texts: %', SQLERRM;
END $$;

-- Letters whose text is still to be made. A letter gets another mark whenever it changes: a text that was made of what it
-- was before is not kept then. The newest have the largest.
CREATE SEQUENCE {schema}.unsearched_marks;
CREATE TABLE {schema}.unsearched (
    id             text     COLLATE "C" PRIMARY KEY,
    mark           bigint   NOT NULL DEFAULT nextval('{schema}.unsearched_marks')
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX unsearched_newest ON {schema}.unsearched (mark);
INSERT INTO {schema}.unsearched (id) SELECT id FROM {schema}.letters ORDER BY seq;

-- By which rules the texts were made: one row, a fingerprint of what is masked.
CREATE TABLE {schema}.texts_rules (
    rules          text     COLLATE "C" NOT NULL
);
INSERT INTO {schema}.texts_rules VALUES ('');

-- What was searched before, unmasked: nobody asks for it any more. An index that somebody made of the function goes with it.
-- The columns stay as long as processes of the version before may still write them.
DROP FUNCTION {schema}.haystack(text, bytea, boolean) CASCADE;
ALTER TABLE {schema}.letters ALTER COLUMN searched DROP NOT NULL, ALTER COLUMN is_text DROP NOT NULL;

CREATE FUNCTION {schema}.texts_added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.unsearched (id) SELECT id FROM after;
    RETURN NULL;
END $$;

-- In this order: who has just made the text of a letter has locked its row of `unsearched`, and is waited for.
CREATE FUNCTION {schema}.texts_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM {schema}.unsearched AS u USING before AS b WHERE u.id = b.id;
    DELETE FROM {schema}.texts AS t USING before AS b WHERE t.id = b.id;
    RETURN NULL;
END $$;

CREATE FUNCTION {schema}.texts_emptied() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM {schema}.unsearched;
    DELETE FROM {schema}.texts;
    RETURN NULL;
END $$;

CREATE TRIGGER texts_added AFTER INSERT ON {schema}.letters REFERENCING NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.texts_added();
CREATE TRIGGER texts_removed AFTER DELETE ON {schema}.letters REFERENCING OLD TABLE AS before
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.texts_removed();
CREATE TRIGGER texts_emptied AFTER TRUNCATE ON {schema}.letters
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.texts_emptied();
