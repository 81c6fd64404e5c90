-- Deletes old buckets of one length.
-- KEYS[1]  {prefix}:letters:series:STEP   sorted set of the starts there are
-- ARGV     {prefix}:letters, step, the start before which they go, how many at most
-- Returns how many went.

local base, step = ARGV[1], ARGV[2]
local old = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. ARGV[3], 'LIMIT', 0, ARGV[4])
for _, start in ipairs(old) do
  redis.call('DEL', base .. ':series:' .. step .. ':' .. start, base .. ':sparks:' .. step .. ':' .. start)
  redis.call('ZREM', KEYS[1], start)
end
return #old
