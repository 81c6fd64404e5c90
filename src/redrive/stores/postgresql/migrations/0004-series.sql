-- What was buried, retried and resolved over time. `at` is in seconds since 1970.

-- What was counted and is not summed up yet: a row for each batch, written in its transaction. Those who record the same
-- error at the same time do not wait for each other.
CREATE TABLE {schema}.counted (
    seq            bigint   PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    counts         bytea    NOT NULL     -- msgpack, see forensics/series.py
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);

-- Summed up by minute, hour and day (`step`, in seconds): by source, category and outcome with an empty group, and by group
-- and source with an empty category.
CREATE TABLE {schema}.series (
    step           integer  NOT NULL,
    group_id       text     COLLATE "C" NOT NULL,
    at             bigint   NOT NULL,
    source         text     COLLATE "C" NOT NULL,
    category       text     COLLATE "C" NOT NULL,
    outcome        text     COLLATE "C" NOT NULL,
    count          bigint   NOT NULL,
    PRIMARY KEY (step, group_id, at, source, category, outcome)
) WITH (fillfactor = 80);
CREATE INDEX series_age ON {schema}.series (step, at);
