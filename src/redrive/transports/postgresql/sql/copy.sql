-- Many at once: the fastest way in, which fails as a whole where one of the ids is queued already. copying.py writes it.
COPY {schema}.queue (source, priority, attempt, enqueued_at, due, tenant, key, rest, waits, id, body)
FROM STDIN (FORMAT binary)
