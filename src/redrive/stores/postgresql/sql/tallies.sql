-- The number of letters by source, state and category, from the counters.
SELECT source, state, category, sum(count)::bigint FROM {schema}.tallies AS l WHERE {where}
GROUP BY 1, 2, 3 HAVING sum(count) > 0 ORDER BY 1, 2, 3;
