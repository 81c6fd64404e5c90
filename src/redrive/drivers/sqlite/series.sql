-- What was buried, retried and resolved over time (stores/sqlite/series.py). `at` is in seconds since 1970.

-- What was counted and is not summed up yet: one row for each batch that was recorded, in its transaction.
CREATE TABLE counted (
    seq            INTEGER PRIMARY KEY,
    counts         BLOB    NOT NULL     -- msgpack, see forensics/series.py
);

-- Summed up by minute, hour and day (`step`, in seconds): by source, category and outcome with an empty group, and by group
-- and source with an empty category.
CREATE TABLE series (
    step           INTEGER NOT NULL,
    group_id       TEXT    NOT NULL,
    at             INTEGER NOT NULL,
    source         TEXT    NOT NULL,
    category       TEXT    NOT NULL,
    outcome        TEXT    NOT NULL,
    count          INTEGER NOT NULL,
    PRIMARY KEY (step, group_id, at, source, category, outcome)
) WITHOUT ROWID;
CREATE INDEX series_age ON series (step, at);
