-- Which tenants a group hit, and which letters wait for a message: each read in a few steps, however many letters there are.
CREATE INDEX letters_group_tenant ON letters (group_id, tenant) WHERE tenant IS NOT NULL;
CREATE INDEX dependencies_message ON dependencies (message_id, letter_id);
