-- The oldest and the newest letter of each group, from its index: two letters are read of each, however many it has.
SELECT g.id, oldest.document, newest.document FROM unnest(%(ids)s::text[]) AS g (id)
CROSS JOIN LATERAL (SELECT l.document FROM {schema}.letters AS l WHERE l.group_id = g.id
                    ORDER BY l.created_at, l.seq LIMIT 1) AS oldest
CROSS JOIN LATERAL (SELECT l.document FROM {schema}.letters AS l WHERE l.group_id = g.id
                    ORDER BY l.created_at DESC, l.seq DESC LIMIT 1) AS newest;
