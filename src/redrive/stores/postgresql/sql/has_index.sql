-- Whether texts have their index; NULL: there is no table of them yet.
SELECT to_regclass('{schema}.texts_trigrams') IS NOT NULL FROM (SELECT to_regclass('{schema}.texts') AS made) AS t
WHERE t.made IS NOT NULL;
