-- Carry out what was decided of leased messages; a lease that is lost has no say.
--
-- done       messages that are done with, those of one lease side by side; `tokens` has their leases, and `ends` for each
--            the number of the last of them
-- back, back_tokens   messages that go back, and for each the microseconds to wait, whether its attempt is taken off
--                     (released) and its failures (NULL: as they are)
-- throttled           the window of a rate that is to be halved because a target throttles us, in microseconds; 0: none
-- to_the_end          whether the rate counts to the end
-- Indexes: queue_ids. Returns each whose lease was lost, and what there is instead: `gone`, `free` (it waits), `held`.
CREATE OR REPLACE FUNCTION {schema}.queue_settle(
    of_source bytea, done bytea[], tokens bigint[], ends integer[], back bytea[], back_tokens bigint[], delays bigint[],
    released boolean[], histories bytea[], throttled bigint, to_the_end boolean
) RETURNS TABLE (id bytea, token bigint, instead text)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    here record;
    now_ bigint := {schema}.queue_now();
    gone bytea[] := '{}';
    kept bigint[] := '{}';
    taken bytea[];
    first integer := 1;
    begun_ones integer := 0;
    number integer;
BEGIN
    SELECT s.no, s.fair INTO here FROM {schema}.queue_sources s WHERE s.name = of_source;
    IF to_the_end OR throttled > 0 OR (here.fair AND cardinality(back) > 0) THEN  -- as a fetch does: rotation, rate, then rows
        PERFORM 1 FROM {schema}.queue_sources s WHERE s.no = here.no FOR UPDATE;
    END IF;
    FOR i IN 1 .. cardinality(tokens) LOOP
        WITH d AS (
            DELETE FROM {schema}.queue q
            WHERE q.source = here.no AND q.id = ANY (done[first:ends[i]]) AND q.lease = tokens[i]
            RETURNING q.id, q.begun)
        SELECT array_agg(d.id), count(*) FILTER (WHERE d.begun) INTO taken, number FROM d;
        gone := gone || taken;
        begun_ones := begun_ones + number;
        first := ends[i] + 1;
    END LOOP;
    IF cardinality(back) > 0 THEN
        WITH b AS (
            UPDATE {schema}.queue q
            SET lease = NULL, until = NULL, begun = false, attempt = q.attempt - u.released::integer,
                waits = u.delay > 0, due = CASE WHEN u.delay > 0 THEN now_ + u.delay END,
                failures = coalesce(u.history, q.failures)
            FROM unnest(back, back_tokens, delays, released, histories)
                WITH ORDINALITY AS u (id, token, delay, released, history, n),
                LATERAL (
                    SELECT h.ctid AS at, h.begun FROM {schema}.queue h
                    WHERE h.source = here.no AND h.id = u.id AND h.lease = u.token FOR UPDATE) AS held
            WHERE q.ctid = held.at
            RETURNING u.n, q.tenant, held.begun),
        uncounted AS (
            UPDATE {schema}.queue_tenants t SET total = greatest(0, t.total - c.number)
            FROM (SELECT b.tenant, count(*) AS number FROM b GROUP BY b.tenant) c
            WHERE here.fair AND t.source = here.no AND t.tenant = c.tenant)
        SELECT coalesce(array_agg(b.n), '{}'), count(*) FILTER (WHERE b.begun) INTO kept, number FROM b;
        begun_ones := begun_ones + number;
        PERFORM pg_notify('{schema}', 'queue:' || here.no);
    END IF;
    IF to_the_end THEN
        DELETE FROM {schema}.queue_running r
        WHERE r.source = here.no AND r.id = ANY (gone || ARRAY(SELECT back[n] FROM unnest(kept) n));
        IF begun_ones > 0 THEN
            UPDATE {schema}.queue_sources s SET starts = s.starts || now_, numbers = s.numbers || begun_ones
            WHERE s.no = here.no;
        END IF;
    END IF;
    IF throttled > 0 THEN
        UPDATE {schema}.queue_sources s SET factor = s.factor / 2, cut_at = now_, raised_at = now_
        WHERE s.no = here.no AND now_ - s.cut_at >= throttled / 6;
    END IF;
    IF cardinality(gone) = cardinality(done) AND cardinality(kept) = cardinality(back) THEN RETURN; END IF;
    RETURN QUERY
        SELECT u.id, u.token,
            CASE WHEN q.id IS NULL THEN 'gone' WHEN q.lease IS NULL THEN 'free' ELSE 'held' END
        FROM (
            SELECT d.id, tokens[(SELECT min(i) FROM generate_subscripts(ends, 1) i WHERE ends[i] >= d.n)] AS token
            FROM unnest(done) WITH ORDINALITY AS d (id, n)
            WHERE NOT d.id = ANY (gone)
            UNION ALL
            SELECT b.id, b.token FROM unnest(back, back_tokens) WITH ORDINALITY AS b (id, token, n)
            WHERE NOT b.n = ANY (kept)) AS u
        LEFT JOIN {schema}.queue q ON q.source = here.no AND q.id = u.id;
END $$;
