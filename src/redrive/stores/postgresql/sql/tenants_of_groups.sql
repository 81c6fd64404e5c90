-- A loose scan of the index letters_group_tenant: a step in it for each tenant of a group, however many letters it has.
SELECT g.id, n.tenant FROM unnest(%(groups)s::text[]) AS g (id) CROSS JOIN LATERAL (
    WITH RECURSIVE named (tenant) AS (
        (SELECT l.tenant FROM {schema}.letters AS l WHERE l.group_id = g.id AND l.tenant IS NOT NULL ORDER BY 1 LIMIT 1)
        UNION ALL
        SELECT (SELECT l.tenant FROM {schema}.letters AS l WHERE l.group_id = g.id AND l.tenant > named.tenant
                AND l.tenant IS NOT NULL ORDER BY 1 LIMIT 1)
        FROM named WHERE named.tenant IS NOT NULL)
    SELECT tenant FROM named WHERE tenant IS NOT NULL LIMIT %(most)s) AS n;
