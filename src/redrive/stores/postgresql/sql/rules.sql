-- By which rules texts are made; locked, so that they stay while texts are written by them.
SELECT rules FROM {schema}.texts_rules FOR SHARE;
