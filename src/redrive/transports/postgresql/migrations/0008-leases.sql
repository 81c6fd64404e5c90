-- Renew leases. Their ids stand side by side by lease: `tokens` has the leases, `ends` for each the number of its last id.
-- Indexes: queue_ids, queue_running_pkey. Returns the numbers of those whose lease was lost.
CREATE OR REPLACE FUNCTION {schema}.queue_extend(
    of_source bytea, ids bytea[], tokens bigint[], ends integer[], lease_for bigint
) RETURNS integer[] LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    here integer := (SELECT no FROM {schema}.queue_sources WHERE name = of_source);
    until_ bigint := {schema}.queue_now() + lease_for;
    first integer := 1;
    kept bytea[];
    lost integer[] := '{}';
BEGIN
    FOR i IN 1 .. cardinality(tokens) LOOP
        WITH k AS (
            UPDATE {schema}.queue q SET until = until_
            WHERE q.source = here AND q.id = ANY (ids[first:ends[i]]) AND q.lease = tokens[i]
            RETURNING q.id)
        SELECT coalesce(array_agg(k.id), '{}') INTO kept FROM k;
        IF cardinality(kept) < ends[i] - first + 1 THEN
            lost := lost || ARRAY(SELECT n FROM generate_series(first, ends[i]) n WHERE NOT ids[n] = ANY (kept));
        END IF;
        UPDATE {schema}.queue_running r SET until = until_ WHERE r.source = here AND r.id = ANY (kept);
        first := ends[i] + 1;
    END LOOP;
    RETURN lost;
END $$;

-- Count the attempts of leased messages: whatever becomes of their worker from now on, they were made.
-- Arguments, indexes and answer as those of queue_extend.
CREATE OR REPLACE FUNCTION {schema}.queue_begin(of_source bytea, ids bytea[], tokens bigint[], ends integer[])
RETURNS integer[] LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    here integer := (SELECT no FROM {schema}.queue_sources WHERE name = of_source);
    first integer := 1;
    kept bytea[];
    lost integer[] := '{}';
BEGIN
    FOR i IN 1 .. cardinality(tokens) LOOP
        WITH k AS (
            UPDATE {schema}.queue q SET begun = true
            WHERE q.source = here AND q.id = ANY (ids[first:ends[i]]) AND q.lease = tokens[i]
            RETURNING q.id)
        SELECT coalesce(array_agg(k.id), '{}') INTO kept FROM k;
        IF cardinality(kept) < ends[i] - first + 1 THEN
            lost := lost || ARRAY(SELECT n FROM generate_series(first, ends[i]) n WHERE NOT ids[n] = ANY (kept));
        END IF;
        first := ends[i] + 1;
    END LOOP;
    RETURN lost;
END $$;
