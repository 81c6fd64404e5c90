-- A loose scan of the index letters_tenant: a step in the index for each tenant, however many letters.
WITH RECURSIVE named (tenant) AS (
    SELECT min(tenant) FROM {schema}.letters WHERE tenant IS NOT NULL
    UNION ALL
    SELECT (SELECT min(l.tenant) FROM {schema}.letters AS l WHERE l.tenant > named.tenant AND l.tenant IS NOT NULL)
    FROM named WHERE named.tenant IS NOT NULL)
SELECT tenant FROM named WHERE tenant IS NOT NULL;
