-- New letters, straight into the table; the trigger counts them at the end.
COPY {schema}.letters ({inserted}) FROM STDIN (FORMAT BINARY);
