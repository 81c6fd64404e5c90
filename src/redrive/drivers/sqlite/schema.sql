-- Everything Redrive keeps in one SQLite file. Times are microseconds since 1970, UTC.

-- The embedded queue. A message is received when `visible_at` has come; receiving it moves `visible_at` to the
-- end of the lease, so that a dead worker's messages come back by themselves.
CREATE TABLE queue (
    seq            INTEGER PRIMARY KEY,
    source         TEXT    NOT NULL,
    id             TEXT    NOT NULL,
    priority       INTEGER NOT NULL,
    visible_at     INTEGER NOT NULL,
    lease          INTEGER,             -- of the receive that holds it; NULL: nobody does
    lapsed         INTEGER NOT NULL DEFAULT 0,  -- whether a lease on it ever ended unsettled
    attempt        INTEGER NOT NULL,    -- how often it was received
    enqueued_at    INTEGER NOT NULL,
    expires_at     INTEGER,
    body           BLOB    NOT NULL,
    rest           BLOB,                -- msgpack: headers, key, tenant, correlation id, origin
    failures       BLOB                 -- msgpack: what went wrong in earlier attempts
);
CREATE UNIQUE INDEX queue_id ON queue (source, id);
CREATE INDEX queue_next ON queue (source, priority, visible_at);

CREATE TABLE letters (
    seq            INTEGER PRIMARY KEY,
    id             TEXT    NOT NULL UNIQUE,
    state          TEXT    NOT NULL,
    category       TEXT    NOT NULL,
    source         TEXT    NOT NULL,
    group_id       TEXT    NOT NULL,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    next_retry_at  INTEGER,
    expires_at     INTEGER,
    priority       INTEGER NOT NULL,
    owner          TEXT,
    lease_until    INTEGER,
    transport      TEXT    NOT NULL,
    tenant         TEXT,
    message_id     TEXT    NOT NULL,
    error_type     TEXT    NOT NULL,
    error_message  TEXT    NOT NULL,
    code           TEXT,
    key            BLOB,
    correlation_id TEXT,
    retries        INTEGER NOT NULL,
    resends        INTEGER NOT NULL,
    replay         TEXT,
    body           BLOB    NOT NULL,
    document       BLOB    NOT NULL     -- the letter in the store's shape
);
CREATE INDEX letters_state ON letters (state, category, created_at);
CREATE INDEX letters_group ON letters (group_id, created_at);
CREATE INDEX letters_source ON letters (source, created_at);
CREATE INDEX letters_tenant ON letters (tenant, created_at) WHERE tenant IS NOT NULL;
CREATE INDEX letters_due ON letters (source, priority, next_retry_at) WHERE next_retry_at IS NOT NULL;
CREATE INDEX letters_lease ON letters (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX letters_expiry ON letters (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE dependencies (
    letter_id      TEXT NOT NULL,
    message_id     TEXT NOT NULL,
    PRIMARY KEY (letter_id, message_id)
) WITHOUT ROWID;

-- Counters kept as letters come, so that a million letters list instantly. `count_new` (letters.sql) counts a batch of
-- new letters at once; the triggers below are the only other writers.
CREATE TABLE tallies (
    group_id       TEXT    NOT NULL,
    source         TEXT    NOT NULL,
    state          TEXT    NOT NULL,
    category       TEXT    NOT NULL,
    count          INTEGER NOT NULL,
    PRIMARY KEY (group_id, source, state, category)
) WITHOUT ROWID;

CREATE TABLE groups (
    id             TEXT    PRIMARY KEY,
    error_type     TEXT    NOT NULL,
    message        TEXT    NOT NULL,
    category       TEXT    NOT NULL,
    first_at       INTEGER NOT NULL,
    last_at        INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TRIGGER letters_moved AFTER UPDATE OF state, category, group_id ON letters
WHEN old.state <> new.state OR old.category <> new.category OR old.group_id <> new.group_id BEGIN
    UPDATE tallies SET count = count - 1
        WHERE group_id = old.group_id AND source = old.source AND state = old.state AND category = old.category;
    INSERT INTO tallies VALUES (new.group_id, new.source, new.state, new.category, 1)
        ON CONFLICT DO UPDATE SET count = count + 1;
END;

CREATE TRIGGER letters_removed AFTER DELETE ON letters BEGIN
    UPDATE tallies SET count = count - 1
        WHERE group_id = old.group_id AND source = old.source AND state = old.state AND category = old.category;
    DELETE FROM dependencies WHERE letter_id = old.id;
END;

CREATE TABLE ledger (
    seq            INTEGER PRIMARY KEY,
    replay         TEXT    NOT NULL,
    letter_id      TEXT    NOT NULL,
    status         TEXT    NOT NULL,
    at             INTEGER NOT NULL,
    note           TEXT    NOT NULL DEFAULT '',
    UNIQUE (replay, letter_id)
);
CREATE INDEX ledger_status ON ledger (replay, status, seq);

CREATE TABLE documents (
    kind           TEXT    NOT NULL,
    id             TEXT    NOT NULL,
    version        INTEGER NOT NULL,
    body           TEXT    NOT NULL,
    PRIMARY KEY (kind, id)
) WITHOUT ROWID;
