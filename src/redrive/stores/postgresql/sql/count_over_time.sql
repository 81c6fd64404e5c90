-- Counts of one batch, to be summed up later (sum_up.sql).
INSERT INTO {schema}.counted (counts) VALUES (%(counts)s);
