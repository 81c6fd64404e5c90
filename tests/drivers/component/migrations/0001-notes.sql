CREATE TABLE {schema}.notes (id integer PRIMARY KEY, text text);
INSERT INTO {schema}.notes VALUES (1, 'from version 1');
