-- Keep what a letter's message was. As a crash may have left it, it is written again.
INSERT INTO {schema}.versions (letter_id, number, facts, body) VALUES (%(letter)s, %(number)s, %(facts)s, %(body)s)
ON CONFLICT (letter_id, number) DO UPDATE SET facts = excluded.facts, body = excluded.body;
