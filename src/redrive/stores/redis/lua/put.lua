-- Writes a document, if its version is the expected one.
-- KEYS[1]  hash id -> `version body`, KEYS[2] sorted set of the ids, all of score 0, so in their own order
-- ARGV     id, expected version (0: there is none; empty: any), body
-- Returns whether it did.

local known = redis.call('HGET', KEYS[1], ARGV[1])
local version = known and tonumber(string.match(known, '^%d+')) or 0
if ARGV[2] ~= '' and tonumber(ARGV[2]) ~= version then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%d ', version + 1) .. ARGV[3])
redis.call('ZADD', KEYS[2], 0, ARGV[1])
return 1
