-- The number of letters by source, state and category, counted one by one: for what the counters do not know.
SELECT l.source, l.state, l.category, count(*) FROM {schema}.letters AS l WHERE {where} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;
