-- Put messages into a source; what makes it one statement of whoever sends, in his transaction if he has one.
--
-- An id that is queued stays as it is or, sent back from a letter (`back`), becomes this one: whoever held it has it no more,
-- because a late ack was meant for the copy. It stays hidden until that lease would have ended.
-- Indexes: queue_ids. Returns how many are new.
CREATE OR REPLACE FUNCTION {schema}.queue_send(
    to_source bytea, back boolean, ids bytea[], priorities integer[], delays bigint[], attempts integer[],
    times bigint[], tenants bigint[], names bytea[], keys bigint[], bodies bytea[], rests bytea[]
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    here record;
    now_ bigint := {schema}.queue_now();
    added integer;
BEGIN
    SELECT no, fair INTO here FROM {schema}.queue_sources WHERE name = to_source;
    IF NOT FOUND THEN
        SELECT {schema}.queue_source(to_source) AS no, false AS fair INTO here;
    END IF;
    IF back THEN
        INSERT INTO {schema}.queue AS q
            (source, id, priority, due, waits, attempt, enqueued_at, tenant, key, body, rest)
        SELECT here.no, id, priority, CASE WHEN delay > 0 THEN now_ + delay END, delay > 0, tried, time,
            CASE WHEN here.fair THEN coalesce(tenant, 0) ELSE tenant END, key, body, rest
        FROM unnest(ids, priorities, delays, attempts, times, tenants, keys, bodies, rests)
            AS u (id, priority, delay, tried, time, tenant, key, body, rest)
        ON CONFLICT (source, id) DO UPDATE
        SET attempt = excluded.attempt, enqueued_at = excluded.enqueued_at, body = excluded.body, rest = excluded.rest,
            failures = NULL, lapsed = q.lapsed OR q.lease IS NOT NULL, begun = false, lease = NULL;
    ELSE
        INSERT INTO {schema}.queue (source, id, priority, due, waits, attempt, enqueued_at, tenant, key, body, rest)
        SELECT here.no, id, priority, CASE WHEN delay > 0 THEN now_ + delay END, delay > 0, tried, time,
            CASE WHEN here.fair THEN coalesce(tenant, 0) ELSE tenant END, key, body, rest
        FROM unnest(ids, priorities, delays, attempts, times, tenants, keys, bodies, rests)
            AS u (id, priority, delay, tried, time, tenant, key, body, rest)
        ON CONFLICT (source, id) DO NOTHING;
    END IF;
    GET DIAGNOSTICS added = ROW_COUNT;
    IF here.fair THEN
        INSERT INTO {schema}.queue_tenants (source, tenant, name, seen_at)
        SELECT DISTINCT ON (coalesce(tenant, 0)) here.no, coalesce(tenant, 0), coalesce(name, ''), now_
        FROM unnest(tenants, names) AS u (tenant, name)
        ON CONFLICT DO NOTHING;
    END IF;
    IF added > 0 THEN
        PERFORM pg_notify('{schema}', 'queue:' || here.no);
    END IF;
    RETURN added;
END $$;

-- After messages were copied into the queue (COPY), in the same transaction: their tenants are known, and who waits is woken.
CREATE OR REPLACE FUNCTION {schema}.queue_sent(of_no integer, is_fair boolean, tenants bigint[], names bytea[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF is_fair THEN
        INSERT INTO {schema}.queue_tenants (source, tenant, name, seen_at)
        SELECT DISTINCT ON (tenant) of_no, tenant, name, {schema}.queue_now() FROM unnest(tenants, names) AS u (tenant, name)
        ON CONFLICT DO NOTHING;
    END IF;
    PERFORM pg_notify('{schema}', 'queue:' || of_no);
END $$;
