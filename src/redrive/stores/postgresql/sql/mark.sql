-- Note what became of letters. An outcome that is known is not overwritten by `sent`, nor by what a repeat of the same
-- batch says. In one order for everybody, by the primary key.
INSERT INTO {schema}.ledger AS l (replay, letter_id, status, at, note)
SELECT * FROM unnest(%(replays)s::text[], %(letters)s::text[], %(statuses)s::text[], %(times)s::bigint[],
                     %(notes)s::text[]) AS e (replay, letter_id, status, at, note)
ORDER BY e.replay, e.letter_id
ON CONFLICT (replay, letter_id) DO UPDATE SET status = excluded.status, at = excluded.at, note = excluded.note
WHERE excluded.status IN ('resolved', 'failed') OR l.status = 'selected';
