SELECT id::text FROM {schema}.queue_identity
