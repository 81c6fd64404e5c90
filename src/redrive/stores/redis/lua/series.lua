-- What was counted, summed up or not. Writes nothing.
-- KEYS[1]  {prefix}:letters:counted
-- ARGV     {prefix}:letters, step, first start, end (which is not in it), fields of groups... (none: those of no group)
-- Returns what is not summed up yet, and of each bucket that there is its start and its numbers: of the fields in their order,
-- or as a list of field and number.

local base, step, since, till = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local starts = redis.call('ZRANGEBYSCORE', base .. ':series:' .. step, since, '(' .. till)
local reply = {redis.call('LRANGE', KEYS[1], 0, -1)}
for _, start in ipairs(starts) do
  local numbers
  if #ARGV == 4 then
    numbers = redis.call('HGETALL', base .. ':series:' .. step .. ':' .. start)
  else
    local key = base .. ':sparks:' .. step .. ':' .. start
    numbers = {}
    for number = 5, #ARGV do numbers[#numbers + 1] = redis.call('HGET', key, ARGV[number]) end
  end
  reply[#reply + 1] = start
  reply[#reply + 1] = numbers
end
return reply
