-- The next lines of a replay's ledger. Writes nothing.
-- KEYS[1]  hash letter -> msgpack of line, status, time, note
-- KEYS[2]  prefix of the sorted sets of letters by line, one for each status
-- ARGV     the line after which to begin, how many, statuses...
-- Returns letter and its packed line, of each.

local limit = tonumber(ARGV[2])
local found = {}
for at = 3, #ARGV do
  local key = KEYS[2] .. ':' .. ARGV[at]
  local some = redis.call('ZRANGEBYSCORE', key, '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, limit)
  for number = 1, #some, 2 do
    found[#found + 1] = {tonumber(some[number + 1]), some[number]}
  end
end
table.sort(found, function(one, other) return one[1] < other[1] end)
local reply = {}
for number = 1, math.min(limit, #found) do
  reply[#reply + 1] = found[number][2]
  reply[#reply + 1] = redis.call('HGET', KEYS[1], found[number][2])
end
return reply
