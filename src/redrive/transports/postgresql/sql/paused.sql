SELECT name FROM {schema}.queue_sources WHERE paused ORDER BY name
