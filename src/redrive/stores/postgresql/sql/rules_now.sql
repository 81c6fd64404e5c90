SELECT rules FROM {schema}.texts_rules;
