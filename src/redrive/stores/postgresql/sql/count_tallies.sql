-- How many letters, from the counters: as many rows as there are kinds of letters, however many letters.
SELECT coalesce(sum(l.count), 0)::bigint FROM {schema}.tallies AS l WHERE {where};
