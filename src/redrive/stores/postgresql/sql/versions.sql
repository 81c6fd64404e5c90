-- The versions that are kept of a letter, by the primary key; their bodies are not read.
SELECT facts FROM {schema}.versions WHERE letter_id = %(letter)s ORDER BY number;
