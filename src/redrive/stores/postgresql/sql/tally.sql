-- How many entries of a replay there are of each status; read from ledger_status alone.
SELECT status, count(*) FROM {schema}.ledger WHERE replay = %(replay)s GROUP BY status;
