-- Move those that are as expected, by the primary key. They are locked in one order for everybody, and looked at again
-- once they are ours. From retrying or replaying to pending or exhausted: the claim is undone, nothing was sent.
WITH chosen AS (
    SELECT l.id FROM {schema}.letters AS l
    WHERE l.id = ANY(%(ids)s::text[]) AND l.state = ANY(%(expect)s::text[])
      AND (%(owner)s::text IS NULL OR l.owner = %(owner)s)
    ORDER BY l.id FOR UPDATE
)
UPDATE {schema}.letters AS l SET state = %(to)s, updated_at = %(now)s, owner = NULL, lease_until = NULL,
       next_retry_at = CASE WHEN %(to)s IN ('pending', 'exhausted') AND l.state IN ('retrying', 'replaying')
                            THEN l.next_retry_at END,
       resends = l.resends - (%(to)s IN ('pending', 'exhausted') AND l.state IN ('retrying', 'replaying'))::integer,
       retries = l.retries - (%(to)s IN ('pending', 'exhausted') AND l.state = 'retrying')::integer,
       archived_from = CASE WHEN %(to)s <> 'archived' THEN NULL WHEN l.state = 'archived' THEN l.archived_from
                            WHEN l.state IN ('retrying', 'replaying') THEN 'exhausted' ELSE l.state END
FROM chosen WHERE l.id = chosen.id
RETURNING l.id, l.source, l.category;
