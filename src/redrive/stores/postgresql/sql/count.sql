-- How many letters, counted one by one: for what the counters do not know.
SELECT count(*) FROM {schema}.letters AS l WHERE {where};
