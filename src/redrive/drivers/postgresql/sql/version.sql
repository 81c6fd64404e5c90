-- The version that the tables of a component have; 0: there are none. Read backwards from the primary key.
SELECT coalesce(max(version), 0) FROM {schema}.migrations WHERE component = %(component)s;
