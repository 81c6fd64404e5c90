-- Only one of two who adopt the same rules at once makes all texts anew.
UPDATE {schema}.texts_rules SET rules = %(rules)s WHERE rules <> %(rules)s RETURNING rules;
