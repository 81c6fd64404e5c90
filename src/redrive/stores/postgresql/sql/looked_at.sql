-- Letters in order, as search.sql finds them, and whether each has the text.
SELECT page.created_at, page.seq, page.id, coalesce(t.text LIKE %(text)s, false)
FROM (SELECT found.id, found.created_at, found.seq
      FROM {keys} CROSS JOIN LATERAL (
          SELECT l.id, l.created_at, l.seq FROM {schema}.letters AS l
          WHERE {where} ORDER BY l.created_at {way}, l.seq {way} LIMIT %(limit)s) AS found
      ORDER BY found.created_at {way}, found.seq {way} LIMIT %(limit)s) AS page
LEFT JOIN {schema}.texts AS t ON t.id = page.id
ORDER BY page.created_at {way}, page.seq {way};
