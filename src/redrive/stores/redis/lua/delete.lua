-- Deletes a document.
-- KEYS[1]  hash id -> `version body`, KEYS[2] sorted set of the ids
-- ARGV     id
-- Returns whether there was one.

redis.call('ZREM', KEYS[2], ARGV[1])
return redis.call('HDEL', KEYS[1], ARGV[1])
