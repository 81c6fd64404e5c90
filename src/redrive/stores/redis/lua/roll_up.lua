-- Sums up some of what was counted, by minute, hour and day.
-- KEYS[1]  {prefix}:letters:counted   list of msgpack: counts of one batch, each {minute, outcome, source, category, group, number}
-- Writes   {prefix}:letters:series:STEP:START   hash of what was counted then, by outcome, category and source
--          {prefix}:letters:sparks:STEP:START   hash of the same, by group and source
--          {prefix}:letters:series:STEP         sorted set of the starts there are
--          {prefix}:letters:series:sources      set of the sources there are
-- ARGV     {prefix}:letters, how many batches
-- Returns how many are left.

local base, most = ARGV[1], tonumber(ARGV[2])
local sums, starts, sources = {}, {}, {}

local function add(key, field, number)
  sums[key] = sums[key] or {}
  sums[key][field] = (sums[key][field] or 0) + number
end

for _, batch in ipairs(redis.call('LRANGE', KEYS[1], 0, most - 1)) do
  for _, count in ipairs(cmsgpack.unpack(batch)) do
    local at, outcome, source, category, group, number = unpack(count)
    sources[source] = true
    for _, step in ipairs({60, 3600, 86400}) do
      local start = string.format('%.0f', at - at % step)
      local place = step .. ':' .. start
      starts[place] = {step, start}
      add(base .. ':series:' .. place, outcome .. ':' .. category .. ':' .. source, number)
      if group ~= '' then add(base .. ':sparks:' .. place, #group .. ':' .. group .. source, number) end
    end
  end
end
for _, start in pairs(starts) do
  redis.call('ZADD', base .. ':series:' .. start[1], start[2], start[2])
end
for source in pairs(sources) do redis.call('SADD', base .. ':series:sources', source) end
for key, fields in pairs(sums) do
  for field, number in pairs(fields) do redis.call('HINCRBY', key, field, number) end
end
redis.call('LTRIM', KEYS[1], most, -1)
return redis.call('LLEN', KEYS[1])
