TRUNCATE {schema}.texts;
