-- Who this queue is, so that what is sent within somebody's transaction is sent to this one and to no other.
CREATE TABLE {schema}.queue_identity (id uuid NOT NULL DEFAULT gen_random_uuid());
INSERT INTO {schema}.queue_identity DEFAULT VALUES;

-- Send one message within the transaction of whoever calls it: the one statement that it costs there.
-- Returns how many are new; -1 where this is another queue than the one that is meant: nothing was sent.
CREATE OR REPLACE FUNCTION {schema}.queue_send_within(
    meant text, to_source bytea, id bytea, priority integer, delay bigint, attempts integer, time_ bigint, tenant bigint,
    name bytea, key bigint, body bytea, rest bytea
) RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM {schema}.queue_identity i WHERE i.id::text = meant) THEN RETURN -1; END IF;
    RETURN {schema}.queue_send(to_source, false, ARRAY[id], ARRAY[priority], ARRAY[delay], ARRAY[attempts], ARRAY[time_],
        ARRAY[tenant], ARRAY[name], ARRAY[key], ARRAY[body], ARRAY[rest]);
END $$;

-- Acknowledge a message within the transaction of its handler; whether its lease was still held. Indexes: queue_ids.
CREATE OR REPLACE FUNCTION {schema}.queue_done_within(of_source bytea, of_id bytea, token bigint) RETURNS boolean
LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
    here integer := (SELECT no FROM {schema}.queue_sources WHERE name = of_source);
BEGIN
    DELETE FROM {schema}.queue q WHERE q.source = here AND q.id = of_id AND q.lease = token;
    IF NOT FOUND THEN RETURN false; END IF;
    DELETE FROM {schema}.queue_running r WHERE r.source = here AND r.id = of_id;
    IF FOUND THEN  -- its rate counts to the end
        UPDATE {schema}.queue_sources SET starts = starts || {schema}.queue_now(), numbers = numbers || 1 WHERE no = here;
    END IF;
    RETURN true;
END $$;
