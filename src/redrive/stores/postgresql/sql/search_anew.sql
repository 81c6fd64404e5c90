-- Letters that changed. The row is locked even if it was there: who makes a text of what the letter was does not end it.
INSERT INTO {schema}.unsearched (id) SELECT unnest(%(ids)s::text[]) ON CONFLICT (id) DO UPDATE SET mark = DEFAULT;
