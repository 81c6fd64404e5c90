-- What the functions of the queue have in common.

-- Now, in microseconds, by the clock of the server.
CREATE OR REPLACE FUNCTION {schema}.queue_now() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

-- The number of a source; it is made where it has none. Two that make it at once get the same.
CREATE OR REPLACE FUNCTION {schema}.queue_source(of_name bytea) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    found_ integer;
BEGIN
    LOOP
        SELECT no INTO found_ FROM {schema}.queue_sources WHERE name = of_name;
        IF FOUND THEN RETURN found_; END IF;
        INSERT INTO {schema}.queue_sources (name) VALUES (of_name) ON CONFLICT DO NOTHING;
    END LOOP;
END $$;

-- What waited and is due may be received. Indexes: queue_waiting.
CREATE OR REPLACE FUNCTION {schema}.queue_ripen(of_source integer, now_ bigint) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
BEGIN
    UPDATE {schema}.queue SET waits = false, due = NULL WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM {schema}.queue WHERE source = of_source AND waits AND due <= now_
        ORDER BY due LIMIT 1000 FOR UPDATE SKIP LOCKED));
END $$;
