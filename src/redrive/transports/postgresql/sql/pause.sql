-- Hold a source for all workers, or let it go on; who waits looks again. Indexes: queue_sources_name_key.
WITH held AS (
    UPDATE {schema}.queue_sources SET paused = %(paused)s WHERE no = {schema}.queue_source(%(source)b) RETURNING no)
SELECT pg_notify('{schema}', 'queue:' || no) FROM held
