-- What a server says of itself, and what we may do in it: one row, no table is read but the catalogue.
SELECT current_setting('server_version_num')::integer        AS version,
       current_setting('fsync')                              AS fsync,
       current_setting('full_page_writes')                   AS full_page_writes,
       current_setting('synchronous_commit')                 AS synchronous_commit,
       current_setting('autovacuum')                         AS autovacuum,
       current_setting('server_encoding')                    AS encoding,
       current_setting('max_connections')::integer           AS max_connections,
       (current_setting('superuser_reserved_connections'))::integer AS reserved_connections,
       (SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user) AS connection_limit,
       (SELECT datconnlimit FROM pg_database WHERE datname = current_database()) AS database_limit,
       current_setting('transaction_read_only')              AS read_only,
       pg_is_in_recovery()                                   AS standby,
       current_user::text                                    AS "user",
       current_database()::text                              AS database,
       has_database_privilege(current_database(), 'CREATE')  AS may_create_schema,
       to_regnamespace(%(schema)s) IS NOT NULL               AS has_schema,
       coalesce(has_schema_privilege(to_regnamespace(%(schema)s), 'CREATE'), false) AS may_create_tables,
       coalesce(has_schema_privilege(to_regnamespace(%(schema)s), 'USAGE'), false)  AS may_use_schema,
       (SELECT count(*) FROM pg_class AS c WHERE c.relnamespace = to_regnamespace(%(schema)s) AND c.relkind = 'r'
        AND NOT (has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
                 AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE')))::integer
                                                             AS closed_tables;
