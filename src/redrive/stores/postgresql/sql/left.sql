SELECT count(*) FROM {schema}.unsearched;
