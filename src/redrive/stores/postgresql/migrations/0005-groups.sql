-- Which tenants a group hit, and which letters wait for a message: each read in a few steps, however many letters there are.
CREATE INDEX letters_group_tenant ON {schema}.letters (group_id, tenant) WHERE tenant IS NOT NULL;
CREATE INDEX letters_parents ON {schema}.letters USING gin (depends_on) WHERE depends_on IS NOT NULL;
