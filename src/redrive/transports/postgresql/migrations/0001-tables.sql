-- The queue: one row for each message that is there. A row is written when it is sent, changed once when it is leased,
-- and deleted when it is done with.
--
-- Times are microseconds since 1970 by the server's own clock. Names and ids are bytes, because text of PostgreSQL cannot
-- hold a NUL, and a message may.
--
-- What keeps it small: a lease changes no column that any index has (`lease`, `until`, `attempt` and the marks), so it is a
-- heap-only update, and a page has room for it (fillfactor). Deleted rows are vacuumed by their number and not by their
-- share of the table.
CREATE TABLE {schema}.queue (
    place       bigint GENERATED ALWAYS AS IDENTITY,  -- the order in which they were sent
    due         bigint,              -- when it may be received, where it waits
    lease       bigint,              -- who holds it: the token of a fetch
    until       bigint,              -- when that lease ends
    enqueued_at bigint NOT NULL,
    tenant      bigint,              -- a digest of its name; 0 is no tenant, where tenants take turns
    key         bigint,              -- a digest of it
    source      integer NOT NULL,    -- queue_sources.no
    priority    integer NOT NULL,    -- lower is more urgent
    attempt     integer NOT NULL,    -- attempts made, with the one that the lease is for
    waits       boolean NOT NULL,    -- until `due`
    begun       boolean NOT NULL DEFAULT false,   -- the attempt of this lease is counted, whatever becomes of it
    lapsed      boolean NOT NULL DEFAULT false,   -- a lease on it ended unsettled, after its attempt had begun
    id          bytea NOT NULL,
    body        bytea NOT NULL,
    rest        bytea,               -- headers and whatever else few messages have, packed by the client
    failures    bytea                -- of earlier attempts, packed by the client
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 1000000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 20000
);
ALTER TABLE {schema}.queue ALTER body SET STORAGE EXTERNAL, ALTER rest SET STORAGE EXTERNAL;

-- An id that is queued is one message; and settling finds a message by it.
CREATE UNIQUE INDEX queue_ids ON {schema}.queue (source, id);
-- What may be received, in the order it is handed out. Leased rows are in it, and passed by.
CREATE INDEX queue_ready ON {schema}.queue (source, priority, place) WHERE NOT waits;
-- What waits for its time.
CREATE INDEX queue_waiting ON {schema}.queue (source, due) WHERE waits;
-- The same as queue_ready, for each tenant; only messages that have one pay for it.
CREATE INDEX queue_turns ON {schema}.queue (source, tenant, priority, place) WHERE tenant IS NOT NULL AND NOT waits;
-- Whether a message is the first of its key; only messages that have one pay for it.
CREATE INDEX queue_keys ON {schema}.queue (source, key, place) WHERE key IS NOT NULL;

-- What is known of each source: its limits, whether it is paused, and where rotation and rate stand. Fetches of a source
-- with limits lock its row, one after the other; all others only read it.
CREATE TABLE {schema}.queue_sources (
    no          integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        bytea NOT NULL UNIQUE,
    paused      boolean NOT NULL DEFAULT false,
    paused_until bigint,                          -- when that ends by itself; NULL: when somebody resumes it
    pause       bytea,                            -- who, why and since when, packed by the client
    fair        boolean NOT NULL DEFAULT false,   -- tenants take turns
    base        integer NOT NULL DEFAULT 5,       -- the priorities of tenants, as they are shown
    increment   integer NOT NULL DEFAULT 1,
    urgent      integer NOT NULL DEFAULT 1,
    weights     jsonb NOT NULL DEFAULT '{}',      -- tenant's digest -> its weight, where it is not 1
    pass        double precision NOT NULL DEFAULT 0,  -- the rotation, as flow/fairness.py says it
    turn        bigint NOT NULL DEFAULT 0,
    last        bigint,                           -- the tenant that was served last
    streak      integer NOT NULL DEFAULT 0,
    factor      double precision NOT NULL DEFAULT 1,  -- the part of the rate that is used while a target throttles us
    cut_at      bigint NOT NULL DEFAULT 0,
    raised_at   bigint NOT NULL DEFAULT 0,
    starts      bigint[] NOT NULL DEFAULT '{}',   -- when messages were taken or, where a rate counts to the end, ended
    numbers     integer[] NOT NULL DEFAULT '{}'   -- and how many
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

-- Tenants of fair sources. One that waits has a place in the ring: `ring_pass` and `ring_turn`.
CREATE TABLE {schema}.queue_tenants (
    source      integer NOT NULL,
    tenant      bigint NOT NULL,
    name        bytea NOT NULL,
    pass        double precision NOT NULL DEFAULT 0,
    total       bigint NOT NULL DEFAULT 0,
    last_at     bigint NOT NULL DEFAULT 0,        -- when it was served last
    seen_at     bigint NOT NULL,
    ring_pass   double precision,
    ring_turn   bigint,
    PRIMARY KEY (source, tenant)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- What is leased of sources whose rate counts to the end; all others have no row here.
CREATE TABLE {schema}.queue_running (
    source      integer NOT NULL,
    id          bytea NOT NULL,
    until       bigint NOT NULL,
    PRIMARY KEY (source, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
