-- Write down how a source is to be shared, so that those who send and those who fetch agree.
-- What was sent before tenants took turns takes part in them from now on. Tenants that were not seen for a week are forgotten.
CREATE OR REPLACE FUNCTION {schema}.queue_govern(
    of_source bytea, is_fair boolean, its_weights jsonb, its_base integer, its_increment integer, its_urgent integer
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    known {schema}.queue_sources;
    now_ bigint := {schema}.queue_now();
BEGIN
    PERFORM {schema}.queue_source(of_source);
    SELECT * INTO known FROM {schema}.queue_sources WHERE name = of_source FOR UPDATE;
    UPDATE {schema}.queue_sources
    SET fair = is_fair, weights = its_weights, base = its_base, increment = its_increment, urgent = its_urgent
    WHERE no = known.no AND (fair, weights, base, increment, urgent)
        IS DISTINCT FROM (is_fair, its_weights, its_base, its_increment, its_urgent);
    IF is_fair THEN
        UPDATE {schema}.queue SET tenant = 0 WHERE source = known.no AND tenant IS NULL;
        DELETE FROM {schema}.queue_tenants
        WHERE source = known.no AND ring_pass IS NULL AND seen_at < now_ - 7 * 86400000000;
    END IF;
END $$;
