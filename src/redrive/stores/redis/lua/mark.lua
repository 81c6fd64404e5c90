-- Notes what became of letters in a replay. An outcome that is known is not overwritten by less.
-- KEYS[1]  hash letter -> msgpack of line, status, time, note
-- KEYS[2]  prefix of the sorted sets of letters by line, one for each status
-- ARGV     letter, status, time, note; of each
-- A letter that the replay did not select is added at the end.

local FINAL = {resolved = true, failed = true}

for at = 1, #ARGV, 4 do
  local letter, status = ARGV[at], ARGV[at + 1]
  local known = redis.call('HGET', KEYS[1], letter)
  local old = known and cmsgpack.unpack(known)
  if not old or FINAL[status] or old[2] == 'selected' then
    local line = old and old[1] or redis.call('HLEN', KEYS[1]) + 1
    if old then redis.call('ZREM', KEYS[2] .. ':' .. old[2], letter) end
    redis.call('ZADD', KEYS[2] .. ':' .. status, line, letter)
    redis.call('HSET', KEYS[1], letter, cmsgpack.pack({line, status, tonumber(ARGV[at + 2]), ARGV[at + 3]}))
  end
end
return 1
