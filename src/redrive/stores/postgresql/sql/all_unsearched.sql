INSERT INTO {schema}.unsearched (id) SELECT id FROM {schema}.letters ORDER BY seq
ON CONFLICT (id) DO UPDATE SET mark = DEFAULT;
