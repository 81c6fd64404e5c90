-- By the index texts_trigrams, or by reading the table where there is none.
SELECT t.id FROM {schema}.texts AS t WHERE t.text LIKE %(text)s LIMIT %(limit)s;
