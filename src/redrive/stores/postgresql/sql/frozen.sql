-- How many letters a replay has selected, by the primary key of the ledger.
SELECT count(*) FROM {schema}.ledger WHERE replay = %(replay)s;
