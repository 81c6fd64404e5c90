-- One version of a letter, by the primary key.
SELECT facts, body FROM {schema}.versions WHERE letter_id = %(letter)s AND number = %(number)s;
