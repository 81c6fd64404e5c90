-- Every source that has letters, from the counters.
SELECT DISTINCT source FROM {schema}.tallies;
