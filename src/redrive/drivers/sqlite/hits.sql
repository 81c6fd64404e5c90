-- How many letters of each tenant a group has. An index on (group_id, tenant) told which they are, and cost recording an
-- eighth of its time: each letter of a batch is somewhere else in it. Files of before have that index.
CREATE TABLE hits (
    group_id       TEXT    NOT NULL,
    tenant         TEXT    NOT NULL,
    count          INTEGER NOT NULL,    -- below zero: letters left before their batch was summed up
    PRIMARY KEY (group_id, tenant)
) WITHOUT ROWID;
INSERT INTO hits SELECT group_id, tenant, count(*) FROM letters WHERE tenant IS NOT NULL GROUP BY group_id, tenant;
DROP INDEX IF EXISTS letters_group_tenant;

-- Letters of a batch by group and tenant, summed up with its counts over time. msgpack; NULL: none has a tenant.
ALTER TABLE counted ADD COLUMN hits BLOB;

CREATE TRIGGER letters_hit_another AFTER UPDATE OF group_id, tenant ON letters
WHEN old.group_id <> new.group_id OR old.tenant IS NOT new.tenant BEGIN
    INSERT INTO hits SELECT old.group_id, old.tenant, -1 WHERE old.tenant IS NOT NULL
        ON CONFLICT DO UPDATE SET count = count - 1;
    INSERT INTO hits SELECT new.group_id, new.tenant, 1 WHERE new.tenant IS NOT NULL
        ON CONFLICT DO UPDATE SET count = count + 1;
    DELETE FROM hits WHERE group_id = old.group_id AND tenant = old.tenant AND count = 0;
END;

CREATE TRIGGER letters_hit_no_more AFTER DELETE ON letters WHEN old.tenant IS NOT NULL BEGIN
    INSERT INTO hits VALUES (old.group_id, old.tenant, -1) ON CONFLICT DO UPDATE SET count = count - 1;
    DELETE FROM hits WHERE group_id = old.group_id AND tenant = old.tenant AND count = 0;
END;
