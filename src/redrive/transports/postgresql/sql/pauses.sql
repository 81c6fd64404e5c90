SELECT pause FROM {schema}.queue_sources
WHERE paused AND coalesce(paused_until > {schema}.queue_now(), true) ORDER BY name
