-- Some of what is not summed up yet. Whoever does the same now takes others.
DELETE FROM {schema}.counted WHERE seq IN (
    SELECT c.seq FROM {schema}.counted AS c ORDER BY c.seq LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING counts;
