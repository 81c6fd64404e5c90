-- Lines of a replay in their order, of one status or of any: by ledger_status or ledger_order.
SELECT seq, letter_id, status, at, note FROM {schema}.ledger
WHERE replay = %(replay)s AND seq > %(after)s {status} ORDER BY seq LIMIT %(limit)s;
