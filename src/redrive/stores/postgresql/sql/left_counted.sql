-- How many batches are not summed up yet.
SELECT count(*) FROM {schema}.counted;
