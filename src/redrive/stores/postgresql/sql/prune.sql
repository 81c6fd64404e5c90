-- Delete the oldest. `{keys}` and `{where}` as in search.sql; `{still}` is the whole condition again, for what another
-- transaction has changed while we waited for it: a letter that has just died again stays.
DELETE FROM {schema}.letters AS l
USING (SELECT found.id
       FROM {keys} CROSS JOIN LATERAL (
           SELECT l.id, l.created_at, l.seq FROM {schema}.letters AS l
           WHERE {where} ORDER BY l.created_at, l.seq LIMIT %(limit)s) AS found
       ORDER BY found.created_at, found.seq LIMIT %(limit)s) AS oldest
WHERE l.id = oldest.id AND {still}
RETURNING l.id;
