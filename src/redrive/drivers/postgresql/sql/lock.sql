-- One migration of a schema at a time. The lock is of the transaction and not of the session, which behind PgBouncer is
-- somebody else's after the next commit.
SELECT pg_advisory_xact_lock(hashtextextended('redrive:' || %(schema)s, 0));
