ALTER TABLE {schema}.notes ADD COLUMN author text NOT NULL DEFAULT 'nobody';
