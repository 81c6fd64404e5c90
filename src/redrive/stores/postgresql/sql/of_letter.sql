-- What became of one letter in some replays, by the primary key of the ledger.
SELECT replay, status, at, note FROM {schema}.ledger
WHERE letter_id = %(letter)s AND replay = ANY(%(replays)s);
