-- The number of a source, whether its tenants take turns, and what time it is. Indexes: queue_sources_name_key.
SELECT no, fair, {schema}.queue_now() FROM {schema}.queue_sources WHERE name = %b
