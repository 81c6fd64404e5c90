-- How many messages of a source its rate allows now, and when there may be more. Its row is locked by the caller.
--
-- wanted      how many would be taken
-- most, span  so many within so many microseconds; adapts: less while a target throttles us; to_the_end: what is leased
--             counts, and what ended within the span
-- Returns the number, and the microseconds until one more may be taken (an hour, if one may be taken now).
-- Indexes: queue_running_pkey.
CREATE OR REPLACE FUNCTION {schema}.queue_capacity(
    of_no integer, now_ bigint, wanted integer, most integer, span bigint, adapts boolean, to_the_end boolean,
    OUT allowed integer, OUT pause bigint
) LANGUAGE plpgsql AS $$
DECLARE
    known {schema}.queue_sources;
    lapsed integer;
    used integer;
    free integer;
BEGIN
    SELECT * INTO known FROM {schema}.queue_sources WHERE no = of_no;
    IF to_the_end THEN  -- what a dead worker began ended when its lease did
        DELETE FROM {schema}.queue_running r WHERE r.source = of_no AND r.until <= now_;
        GET DIAGNOSTICS lapsed = ROW_COUNT;
        IF lapsed > 0 THEN
            known.starts := known.starts || now_;
            known.numbers := known.numbers || lapsed;
        END IF;
    END IF;
    SELECT coalesce(array_agg(at ORDER BY n), '{}'), coalesce(array_agg(number ORDER BY n), '{}'), coalesce(sum(number), 0)
    INTO known.starts, known.numbers, used
    FROM unnest(known.starts, known.numbers) WITH ORDINALITY AS u (at, number, n) WHERE at > now_ - span;
    IF NOT adapts THEN
        known.factor := 1;
    ELSIF known.factor < 1 AND now_ - known.raised_at >= span THEN
        known.factor := least(1, known.factor + 0.1);
        known.raised_at := now_;
    END IF;
    UPDATE {schema}.queue_sources
    SET starts = known.starts, numbers = known.numbers, factor = known.factor, raised_at = known.raised_at
    WHERE no = of_no;
    free := greatest(1, floor(most * known.factor + 0.000000001)::integer) - used;
    pause := coalesce(known.starts[1] + span - now_, 3600000000);
    IF to_the_end THEN
        free := free - (SELECT count(*) FROM {schema}.queue_running r WHERE r.source = of_no);
        pause := least(pause, span);
    END IF;
    allowed := greatest(0, least(wanted, free));
    IF free > 0 THEN pause := 3600000000; END IF;
END $$;
