-- Many at once: the fastest way in, which fails as a whole where one of the ids is queued already.
COPY {schema}.queue (source, id, priority, waits, due, attempt, enqueued_at, tenant, key, body, rest)
FROM STDIN (FORMAT binary)
