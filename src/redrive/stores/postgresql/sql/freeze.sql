-- What a replay selects, the oldest first: a million letters, and none of them passes through our process.
INSERT INTO {schema}.ledger (replay, letter_id, status, at)
SELECT %(replay)s, l.id, 'selected', %(now)s FROM {schema}.letters AS l
WHERE {where} AND l.state IN ('pending', 'exhausted', 'sent')
ORDER BY l.created_at, l.seq
ON CONFLICT DO NOTHING;
