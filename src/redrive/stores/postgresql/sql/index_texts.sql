-- The index of texts, once pg_trgm can be had. Who prunes waits while it is made; who records, reads or searches does not.
DO $$
DECLARE home text;
BEGIN
    IF to_regclass('{schema}.texts_trigrams') IS NULL THEN
        CREATE EXTENSION IF NOT EXISTS pg_trgm;
        SELECT n.nspname INTO home FROM pg_opclass AS o JOIN pg_namespace AS n ON n.oid = o.opcnamespace
        WHERE o.opcname = 'gin_trgm_ops' LIMIT 1;
        LOCK TABLE {schema}.texts IN SHARE ROW EXCLUSIVE MODE;
        IF to_regclass('{schema}.texts_trigrams') IS NULL THEN
            EXECUTE format('CREATE INDEX texts_trigrams ON {schema}.texts USING gin (text %I.gin_trgm_ops)', home);
        END IF;
    END IF;
EXCEPTION WHEN OTHERS THEN
    RAISE NOTICE 'no index of texts: %', SQLERRM;
END $$;
