-- Keep a version that an import brings, of a letter that is there; one that is kept already stays.
INSERT INTO {schema}.versions (letter_id, number, facts, body)
SELECT l.id, %(number)s, %(facts)s, %(body)s FROM {schema}.letters AS l WHERE l.id = %(letter)s
ON CONFLICT (letter_id, number) DO NOTHING;
