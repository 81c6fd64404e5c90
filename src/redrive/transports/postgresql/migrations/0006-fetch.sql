-- Lease the next messages of a source: the most urgent first, then in the order they were sent.
--
-- wanted      how many at most
-- token       of the lease;  lease_for: its length in microseconds
-- at_once     their attempts are counted now; otherwise queue_begin counts them
-- by_key      only the first of each key: whatever became of it, it is there until it is done with
-- most, span, adapts, to_the_end   the rate (queue_capacity); most = 0: any number
-- in_a_row    most of a tenant in a row, where tenants take turns
-- after_priority, after_place   begin behind it: what is before was gone or held a moment ago. NULL: look at everything
-- A lease that ended is taken as it is met. If its attempt had not begun, nobody saw it: it is not counted.
-- Indexes: queue_ready, queue_waiting (what is due becomes ready first), queue_keys, queue_turns.
-- Returns the leased; `place` is NULL where they come in the order of the turns.
CREATE OR REPLACE FUNCTION {schema}.queue_fetch(
    of_source bytea, wanted integer, token bigint, lease_for bigint, at_once boolean, by_key boolean,
    most integer, span bigint, adapts boolean, to_the_end boolean, in_a_row integer,
    after_priority integer, after_place bigint
) RETURNS TABLE (
    id bytea, attempt integer, begun boolean, lapsed boolean, priority integer, enqueued_at bigint, body bytea, rest bytea,
    failures bytea, place bigint
) LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
#variable_conflict use_column
DECLARE
    here record;
    now_ bigint := {schema}.queue_now();
    found_ tid[];
    taken integer;
BEGIN
    SELECT s.no, s.paused AND coalesce(s.paused_until > now_, true) AS paused, s.fair INTO here FROM {schema}.queue_sources s WHERE s.name = of_source;
    IF here.no IS NULL OR here.paused THEN RETURN; END IF;
    PERFORM {schema}.queue_ripen(here.no, now_);
    IF here.fair OR most > 0 OR by_key THEN  -- one fetch after the other
        PERFORM 1 FROM {schema}.queue_sources s WHERE s.no = here.no FOR UPDATE;
        now_ := {schema}.queue_now();
        after_place := NULL;
        IF most > 0 THEN
            SELECT c.allowed INTO wanted
            FROM {schema}.queue_capacity(here.no, now_, wanted, most, span, adapts, to_the_end) c;
            IF wanted = 0 THEN RETURN; END IF;
        END IF;
    END IF;
    IF here.fair THEN
        found_ := {schema}.queue_take_turns(here.no, wanted, in_a_row, now_, token, lease_for, at_once);
    ELSIF by_key THEN
        found_ := ARRAY(
            SELECT q.ctid FROM {schema}.queue q
            WHERE q.source = here.no AND NOT q.waits AND (q.until IS NULL OR q.until <= now_)
              AND (q.key IS NULL OR NOT EXISTS (
                  SELECT 1 FROM {schema}.queue f WHERE f.source = here.no AND f.key = q.key AND f.place < q.place))
            ORDER BY q.priority, q.place LIMIT wanted FOR UPDATE SKIP LOCKED);
    ELSIF after_place IS NOT NULL THEN
        found_ := ARRAY(
            SELECT q.ctid FROM {schema}.queue q
            WHERE q.source = here.no AND NOT q.waits AND (q.priority, q.place) > (after_priority, after_place)
              AND (q.until IS NULL OR q.until <= now_)
            ORDER BY q.priority, q.place LIMIT wanted FOR UPDATE SKIP LOCKED);
    ELSE
        found_ := ARRAY(
            SELECT q.ctid FROM {schema}.queue q
            WHERE q.source = here.no AND NOT q.waits AND (q.until IS NULL OR q.until <= now_)
            ORDER BY q.priority, q.place LIMIT wanted FOR UPDATE SKIP LOCKED);
    END IF;
    IF to_the_end THEN
        INSERT INTO {schema}.queue_running (source, id, until)
        SELECT here.no, q.id, now_ + lease_for FROM {schema}.queue q WHERE q.ctid = ANY (found_)
        ON CONFLICT (source, id) DO UPDATE SET until = excluded.until;
    ELSIF most > 0 AND cardinality(found_) > 0 THEN
        UPDATE {schema}.queue_sources s
        SET starts = s.starts || now_, numbers = s.numbers || cardinality(found_) WHERE s.no = here.no;
    END IF;
    IF here.fair THEN
        RETURN QUERY
            SELECT q.id, q.attempt, q.begun, q.lapsed, q.priority, q.enqueued_at, q.body, q.rest, q.failures, NULL::bigint
            FROM unnest(found_) WITH ORDINALITY AS u (at, n) JOIN {schema}.queue q ON q.ctid = u.at ORDER BY u.n;
    ELSE
        RETURN QUERY UPDATE {schema}.queue q
            SET lease = token, until = now_ + lease_for, begun = at_once,
                attempt = q.attempt + CASE WHEN q.lease IS NOT NULL AND NOT q.begun THEN 0 ELSE 1 END,
                lapsed = q.lapsed OR (q.lease IS NOT NULL AND q.begun)
            WHERE q.ctid = ANY (found_)
            RETURNING q.id, q.attempt, q.begun, q.lapsed, q.priority, q.enqueued_at, q.body, q.rest, q.failures, q.place;
    END IF;
END $$;

-- Microseconds until there may be something to receive of a source, where nothing was found. Indexes: queue_waiting.
CREATE OR REPLACE FUNCTION {schema}.queue_pause_of(
    of_source bytea, most integer, span bigint, to_the_end boolean
) RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    known {schema}.queue_sources;
    now_ bigint := {schema}.queue_now();
    next_ bigint;
BEGIN
    SELECT * INTO known FROM {schema}.queue_sources WHERE name = of_source;
    IF NOT FOUND THEN RETURN 3600000000; END IF;
    IF known.paused AND coalesce(known.paused_until > now_, true) THEN
        RETURN coalesce(known.paused_until - now_, 3600000000);
    END IF;
    SELECT q.due INTO next_ FROM {schema}.queue q WHERE q.source = known.no AND q.waits ORDER BY q.due LIMIT 1;
    IF most > 0 AND cardinality(known.starts) > 0 THEN
        next_ := least(next_, known.starts[1] + span + 1);
    END IF;
    RETURN greatest(0, coalesce(next_ - now_, 3600000000));
END $$;
