-- Tenants of a fair source take turns, by the rule of flow/fairness.py. Its row is locked by the caller.
--
-- Whoever has something to do stands in the ring (queue_tenants.ring_pass, ring_turn). A turn is up to `in_a_row` messages
-- of one tenant; after it, the tenant stands behind everybody who waits, or leaves.
-- Indexes: queue_turns (who has something to do, and what), queue_ring (who is next).
-- Returns where the leased rows are now, in the order of the turns.
CREATE INDEX queue_ring ON {schema}.queue_tenants (source, ring_pass, ring_turn, tenant) WHERE ring_pass IS NOT NULL;

CREATE OR REPLACE FUNCTION {schema}.queue_weight(weights jsonb, tenant bigint) RETURNS double precision
LANGUAGE sql IMMUTABLE AS $$ SELECT coalesce((weights ->> tenant::text)::double precision, 1) $$;

-- Those who have something to do and do not stand in the ring take a place behind those who wait.
CREATE OR REPLACE FUNCTION {schema}.queue_join(known {schema}.queue_sources, now_ bigint) RETURNS void
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
BEGIN
    WITH RECURSIVE present (tenant) AS (
        (SELECT q.tenant FROM {schema}.queue q WHERE q.source = known.no AND q.tenant IS NOT NULL AND NOT q.waits
         ORDER BY q.tenant LIMIT 1)
        UNION ALL
        SELECT (SELECT q.tenant FROM {schema}.queue q WHERE q.source = known.no AND q.tenant > p.tenant AND NOT q.waits
                ORDER BY q.tenant LIMIT 1)
        FROM present p WHERE p.tenant IS NOT NULL),
    waiting AS (
        SELECT p.tenant FROM present p
        WHERE NOT EXISTS (SELECT 1 FROM {schema}.queue_tenants t
                          WHERE t.source = known.no AND t.tenant = p.tenant AND t.ring_pass IS NOT NULL)
          AND EXISTS (SELECT 1 FROM {schema}.queue q
                      WHERE q.source = known.no AND q.tenant = p.tenant AND NOT q.waits
                        AND (q.until IS NULL OR q.until <= now_)))
    INSERT INTO {schema}.queue_tenants AS t (source, tenant, name, seen_at, ring_pass, ring_turn)
    SELECT known.no, w.tenant, '', now_, known.pass + 1 / {schema}.queue_weight(known.weights, w.tenant), known.turn
    FROM waiting w
    ON CONFLICT (source, tenant) DO UPDATE
    SET ring_pass = greatest(excluded.ring_pass, t.pass), ring_turn = excluded.ring_turn;
END $$;

-- Lease up to so many of one tenant, the most urgent first; where they are now, and whether it has more.
CREATE OR REPLACE FUNCTION {schema}.queue_pop(
    of_no integer, of_tenant bigint, wanted integer, now_ bigint, token bigint, lease_for bigint, at_once boolean,
    OUT leased tid[], OUT has_more boolean
) LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
DECLARE
    ready tid[];
    place_of bigint;
BEGIN
    ready := ARRAY(
        SELECT q.ctid FROM {schema}.queue q
        WHERE q.source = of_no AND q.tenant = of_tenant AND NOT q.waits AND (q.until IS NULL OR q.until <= now_)
        ORDER BY q.priority, q.place LIMIT wanted + 1 FOR UPDATE SKIP LOCKED);
    has_more := cardinality(ready) > wanted;
    leased := '{}';
    FOR i IN 1 .. least(wanted, cardinality(ready)) LOOP
        leased := leased || {schema}.queue_lease(ready[i], now_, token, lease_for, at_once);
    END LOOP;
END $$;

-- Lease one row. A lease on it that ended counts as lapsed if its attempt had begun; if not, nobody saw that attempt.
CREATE OR REPLACE FUNCTION {schema}.queue_lease(
    at tid, now_ bigint, token bigint, lease_for bigint, at_once boolean
) RETURNS tid LANGUAGE sql AS $$
    UPDATE {schema}.queue q
    SET lease = token, until = now_ + lease_for, begun = at_once,
        attempt = q.attempt + CASE WHEN q.lease IS NOT NULL AND NOT q.begun THEN 0 ELSE 1 END,
        lapsed = q.lapsed OR (q.lease IS NOT NULL AND q.begun)
    WHERE q.ctid = at RETURNING q.ctid
$$;

CREATE OR REPLACE FUNCTION {schema}.queue_take_turns(
    of_no integer, wanted integer, in_a_row integer, now_ bigint, token bigint, lease_for bigint, at_once boolean
) RETURNS tid[] LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
DECLARE
    known {schema}.queue_sources;
    leased tid[] := '{}';
    ring record;
    next_ record;
    number integer;
    allowed integer;
    charge double precision;
    popped record;
BEGIN
    SELECT * INTO known FROM {schema}.queue_sources WHERE no = of_no;
    PERFORM {schema}.queue_join(known, now_);
    WHILE cardinality(leased) < wanted LOOP
        SELECT t.tenant, t.ring_pass INTO ring FROM {schema}.queue_tenants t
        WHERE t.source = of_no AND t.ring_pass IS NOT NULL
        ORDER BY t.ring_pass, t.ring_turn, t.tenant LIMIT 1;
        EXIT WHEN NOT FOUND;
        SELECT t.tenant, t.ring_pass INTO next_ FROM {schema}.queue_tenants t
        WHERE t.source = of_no AND t.ring_pass IS NOT NULL
        ORDER BY t.ring_pass, t.ring_turn, t.tenant LIMIT 1 OFFSET 1;
        number := wanted - cardinality(leased);
        charge := 1;
        IF NOT FOUND THEN
            allowed := number;
        ELSIF ring.tenant = known.last AND known.streak >= in_a_row THEN
            ring := next_;
            IF known.weights = '{}' THEN
                allowed := least(number, in_a_row);
            ELSE  -- with weights, one message is enough to let another one in between
                allowed := 1;
                charge := 1.0 / in_a_row;
            END IF;
        ELSE
            allowed := least(number, CASE WHEN ring.tenant = known.last THEN in_a_row - known.streak ELSE in_a_row END);
        END IF;
        popped := {schema}.queue_pop(of_no, ring.tenant, allowed, now_, token, lease_for, at_once);
        IF cardinality(popped.leased) = 0 THEN  -- what it had is gone
            UPDATE {schema}.queue_tenants t SET ring_pass = NULL, ring_turn = NULL
            WHERE t.source = of_no AND t.tenant = ring.tenant;
            CONTINUE;
        END IF;
        leased := leased || popped.leased;
        known.streak := cardinality(popped.leased) + CASE WHEN ring.tenant = known.last THEN known.streak ELSE 0 END;
        known.last := ring.tenant;
        IF charge = 1 THEN known.pass := greatest(known.pass, ring.ring_pass); END IF;
        -- a turn that the limit cut short goes on with the next fetch
        IF popped.has_more AND cardinality(leased) = wanted AND cardinality(popped.leased) < in_a_row
            AND known.streak < in_a_row THEN
            UPDATE {schema}.queue_tenants t
            SET total = t.total + cardinality(popped.leased), last_at = now_, seen_at = now_
            WHERE t.source = of_no AND t.tenant = ring.tenant;
            EXIT;
        END IF;
        known.turn := known.turn + 1;
        UPDATE {schema}.queue_tenants t
        SET total = t.total + cardinality(popped.leased), last_at = now_, seen_at = now_,
            pass = ring.ring_pass + charge / {schema}.queue_weight(known.weights, ring.tenant),
            ring_pass = CASE WHEN popped.has_more
                THEN ring.ring_pass + charge / {schema}.queue_weight(known.weights, ring.tenant) END,
            ring_turn = CASE WHEN popped.has_more THEN known.turn END
        WHERE t.source = of_no AND t.tenant = ring.tenant;
    END LOOP;
    UPDATE {schema}.queue_sources
    SET pass = known.pass, turn = known.turn, last = known.last, streak = known.streak WHERE no = of_no;
    RETURN leased;
END $$;
