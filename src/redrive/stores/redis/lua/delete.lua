-- Deletes a document.
-- KEYS[1]  hash id -> `version body`, KEYS[2] sorted set of the ids
-- ARGV     id, the version that it has to have (empty: any)
-- Returns whether it was deleted.

if ARGV[2] ~= '' then
  local known = redis.call('HGET', KEYS[1], ARGV[1])
  if not known or string.match(known, '^%d+') ~= ARGV[2] then
    return 0
  end
end
redis.call('ZREM', KEYS[2], ARGV[1])
return redis.call('HDEL', KEYS[1], ARGV[1])
