-- Old buckets of one length, by the index of their age.
DELETE FROM {schema}.series WHERE step = %(step)s AND at < %(before)s;
