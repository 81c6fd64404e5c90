-- A row if nobody has frozen this replay yet. Who does it at the same time waits until we are through.
INSERT INTO {schema}.frozen (replay) VALUES (%(replay)s) ON CONFLICT DO NOTHING RETURNING replay;
