-- Lease the most urgent. What another transaction is working on is passed over (SKIP LOCKED): it is being claimed, moved
-- or recorded, and no longer as we would find it. What a letter depends on is found by letters_message; what is due, in
-- order by letters_due.
WITH chosen AS (
    SELECT l.id FROM {schema}.letters AS l
    WHERE {where}
      AND l.state = ANY(%(from)s::text[])
      AND (l.state <> %(to)s OR l.owner = %(me)s)
      AND (l.depends_on IS NULL OR NOT EXISTS (
          SELECT 1 FROM unnest(l.depends_on) AS d (message_id) JOIN {schema}.letters AS a ON a.message_id = d.message_id
          WHERE a.state NOT IN ('resolved', 'archived')))
    ORDER BY l.priority, l.next_retry_at NULLS FIRST, l.seq
    LIMIT %(limit)s
    FOR UPDATE OF l SKIP LOCKED
)
UPDATE {schema}.letters AS l SET state = %(to)s, owner = %(me)s, lease_until = %(until)s, updated_at = %(now)s,
       resends = l.resends + (l.state <> %(to)s)::integer,
       retries = l.retries + (l.state <> %(to)s AND %(to)s = 'retrying')::integer,
       replay = coalesce(%(replay)s, l.replay)
FROM chosen WHERE l.id = chosen.id
RETURNING {columns};
