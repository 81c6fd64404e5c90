-- Letters, their counters, the ledger of replays and small documents. Times are microseconds since 1970, UTC: every
-- moment that a message can carry fits, in every time zone that a session may have.
--
-- Text that PostgreSQL cannot hold (NUL, half a surrogate pair) is written with escapes (codec.py); the letter itself is
-- in `document` and `body`, byte by byte. Texts are compared by their bytes (COLLATE "C"), as in every other store.

CREATE TABLE {schema}.letters (
    seq            bigint   NOT NULL GENERATED ALWAYS AS IDENTITY,  -- the order in which they came
    id             text     COLLATE "C" PRIMARY KEY,
    state          text     COLLATE "C" NOT NULL,
    category       text     COLLATE "C" NOT NULL,
    source         text     COLLATE "C" NOT NULL,
    group_id       text     COLLATE "C" NOT NULL,
    created_at     bigint   NOT NULL,
    updated_at     bigint   NOT NULL,
    next_retry_at  bigint,
    expires_at     bigint,
    lease_until    bigint,
    priority       bigint   NOT NULL,
    retries        bigint   NOT NULL,
    resends        bigint   NOT NULL,
    is_text        boolean  NOT NULL,   -- the body is UTF-8
    owner          text     COLLATE "C",
    transport      text     COLLATE "C" NOT NULL,
    tenant         text     COLLATE "C",
    message_id     text     COLLATE "C" NOT NULL,
    error_type     text     COLLATE "C" NOT NULL,
    error_message  text     COLLATE "C" NOT NULL,
    code           text     COLLATE "C",
    replay         text     COLLATE "C",
    depends_on     text[]   COLLATE "C",  -- message ids; NULL: none
    searched       text     COLLATE "C" NOT NULL,  -- id, key, correlation id and error, in lower case
    odd            text     COLLATE "C",  -- what of these, and of the body, is no UTF-8: each byte as a character
    body           bytea    NOT NULL,
    document       bytea    NOT NULL      -- the letter in the store's shape, without its body
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1,
        autovacuum_analyze_scale_factor = 0.05);

-- Pages in order of time, read from the index and never sorted: of a state and category (and, one for each of them, of
-- everything), of a group, of a source, of a tenant.
CREATE INDEX letters_state ON {schema}.letters (state, category, created_at, seq);
CREATE INDEX letters_group ON {schema}.letters (group_id, created_at, seq);
CREATE INDEX letters_source ON {schema}.letters (source, created_at, seq);
CREATE INDEX letters_tenant ON {schema}.letters (tenant, created_at, seq) WHERE tenant IS NOT NULL;
-- What a message depends on, and what is asked for by its message's id, which may be of any length.
CREATE INDEX letters_message ON {schema}.letters USING hash (message_id);
-- What few letters have: a planned retry (the most urgent first), a lease, a time to live.
CREATE INDEX letters_due ON {schema}.letters (source, priority, next_retry_at NULLS FIRST, seq)
    WHERE next_retry_at IS NOT NULL;
CREATE INDEX letters_lease ON {schema}.letters (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX letters_expiry ON {schema}.letters (expires_at) WHERE expires_at IS NOT NULL;

-- What a text is looked for in. It can have an index (docs/how-to/postgresql.md), which makes recording ten times slower
-- and is therefore left to you.
CREATE FUNCTION {schema}.haystack(searched text, body bytea, is_text boolean) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN is_text THEN searched || U&'\FFFF' || lower(convert_from(body, 'UTF8') COLLATE "C")
           ELSE searched END
$$;

-- Counters, kept by the triggers below as letters come, move and go, whoever does it, so that a million letters list
-- instantly. A kind has several rows, of which each connection writes one: those who record the same error at the
-- same time do not wait for each other's commit. A row can be below zero; their sum is not.
CREATE TABLE {schema}.tallies (
    group_id       text     COLLATE "C" NOT NULL,
    source         text     COLLATE "C" NOT NULL,
    state          text     COLLATE "C" NOT NULL,
    category       text     COLLATE "C" NOT NULL,
    slot           smallint NOT NULL,
    count          bigint   NOT NULL,
    first_at       bigint   NOT NULL,
    last_at        bigint   NOT NULL,
    PRIMARY KEY (group_id, source, state, category, slot)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);

CREATE TABLE {schema}.groups (
    id             text     COLLATE "C" PRIMARY KEY,
    error_type     text     COLLATE "C" NOT NULL,
    message        text     COLLATE "C" NOT NULL,
    category       text     COLLATE "C" NOT NULL
);

CREATE FUNCTION {schema}.letters_added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.groups (id, error_type, message, category)
    SELECT DISTINCT ON (group_id) group_id, error_type, error_message, category FROM after ORDER BY group_id, seq DESC
    ON CONFLICT DO NOTHING;
    INSERT INTO {schema}.tallies AS t (group_id, source, state, category, slot, count, first_at, last_at)
    SELECT group_id, source, state, category, pg_backend_pid() % 8, count(*), min(created_at), max(created_at)
    FROM after GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
    ON CONFLICT (group_id, source, state, category, slot) DO UPDATE SET count = t.count + excluded.count,
        first_at = least(t.first_at, excluded.first_at), last_at = greatest(t.last_at, excluded.last_at);
    RETURN NULL;
END $$;

CREATE FUNCTION {schema}.letters_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.groups (id, error_type, message, category)
    SELECT DISTINCT ON (a.group_id) a.group_id, a.error_type, a.error_message, a.category
    FROM after AS a JOIN before AS b ON b.id = a.id WHERE a.group_id <> b.group_id ORDER BY a.group_id, a.seq DESC
    ON CONFLICT DO NOTHING;
    INSERT INTO {schema}.tallies AS t (group_id, source, state, category, slot, count, first_at, last_at)
    SELECT c.group_id, c.source, c.state, c.category, pg_backend_pid() % 8, sum(c.change), min(c.at), max(c.at)
    FROM after AS a JOIN before AS b ON b.id = a.id CROSS JOIN LATERAL (VALUES
        (b.group_id, b.source, b.state, b.category, -1, b.created_at),
        (a.group_id, a.source, a.state, a.category, 1, a.created_at)) AS c (group_id, source, state, category, change, at)
    WHERE (a.state, a.category, a.group_id, a.source, a.created_at)
       <> (b.state, b.category, b.group_id, b.source, b.created_at)
    GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
    ON CONFLICT (group_id, source, state, category, slot) DO UPDATE SET count = t.count + excluded.count,
        first_at = least(t.first_at, excluded.first_at), last_at = greatest(t.last_at, excluded.last_at);
    RETURN NULL;
END $$;

CREATE FUNCTION {schema}.letters_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.tallies AS t (group_id, source, state, category, slot, count, first_at, last_at)
    SELECT group_id, source, state, category, pg_backend_pid() % 8, -count(*), min(created_at), max(created_at)
    FROM before GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
    ON CONFLICT (group_id, source, state, category, slot) DO UPDATE SET count = t.count + excluded.count;
    RETURN NULL;
END $$;

CREATE FUNCTION {schema}.letters_emptied() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM {schema}.tallies;
    DELETE FROM {schema}.groups;
    RETURN NULL;
END $$;

CREATE TRIGGER added AFTER INSERT ON {schema}.letters REFERENCING NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.letters_added();
CREATE TRIGGER changed AFTER UPDATE ON {schema}.letters REFERENCING OLD TABLE AS before NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.letters_changed();
CREATE TRIGGER removed AFTER DELETE ON {schema}.letters REFERENCING OLD TABLE AS before
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.letters_removed();
CREATE TRIGGER emptied AFTER TRUNCATE ON {schema}.letters
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.letters_emptied();

-- One line for each letter of each replay. The index gives the lines of a status in the order they were selected.
CREATE TABLE {schema}.ledger (
    seq            bigint   NOT NULL GENERATED ALWAYS AS IDENTITY,
    replay         text     COLLATE "C" NOT NULL,
    letter_id      text     COLLATE "C" NOT NULL,
    status         text     COLLATE "C" NOT NULL,
    at             bigint   NOT NULL,
    note           text     COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (replay, letter_id)
);
CREATE INDEX ledger_order ON {schema}.ledger (replay, seq);
CREATE INDEX ledger_status ON {schema}.ledger (replay, status, seq);

-- The replays that are frozen, a selection of nothing included: what comes later was not approved.
CREATE TABLE {schema}.frozen (
    replay         text     COLLATE "C" PRIMARY KEY
);

-- `json` and not `jsonb`: it keeps what it is given, \u0000 too.
CREATE TABLE {schema}.documents (
    kind           text     COLLATE "C" NOT NULL,
    id             text     COLLATE "C" NOT NULL,
    version        bigint   NOT NULL,
    body           json     NOT NULL,
    PRIMARY KEY (kind, id)
) WITH (fillfactor = 80);
