-- A page. `{keys}` are the values for which an index has the letters in order of time (query.py): the newest of each are
-- read from it, and of those the newest are the page. Only the letters of the page itself are read from the table.
SELECT {columns}
FROM (SELECT found.id
      FROM {keys} CROSS JOIN LATERAL (
          SELECT l.id, l.created_at, l.seq FROM {schema}.letters AS l
          WHERE {where} ORDER BY l.created_at {way}, l.seq {way} LIMIT %(limit)s) AS found
      ORDER BY found.created_at {way}, found.seq {way} LIMIT %(limit)s) AS page
JOIN {schema}.letters AS l ON l.id = page.id
ORDER BY l.created_at {way}, l.seq {way};
