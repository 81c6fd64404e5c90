#!lua flags=no-writes
-- How the tenants of a fair queue fare, the last served first.
--
-- KEYS[1]  the queue (shared.lua names every key)
-- ARGV     1 how many at most
-- Returns  for each: name, total, time of the last one (0: none yet), rounds without, priority, in a row, how many wait
local known = call('HMGET', LIMITS, 'turn', 'tenant', 'streak', 'base', 'increment', 'urgent')
local turn, reply = tonumber(known[1] or 0), {}
local base, increment, urgent = tonumber(known[4] or 5), tonumber(known[5] or 1), tonumber(known[6] or 1)
for _, tenant in ipairs(call('ZREVRANGE', SEEN, 0, ARGV[1] - 1)) do
  local packed = call('HGET', TENANTS, tenant)
  if packed then
    local record, place, waiting = record_of(packed), call('HGET', PLACES, tenant), 0
    for _, priority in ipairs(call('ZRANGE', BASE .. ':urgency:' .. tenant, 0, -1)) do
      waiting = waiting + call('LLEN', lane(tenant, priority))
    end
    local rounds = place and turn - math.max(tonumber(string.sub(place, 1, 14)), record[5]) or 0
    local in_a_row = tenant == known[2] and tonumber(known[3]) or 0
    local priority = math.max(urgent, base - rounds * increment)
    reply[#reply + 1] = {record[1], record[3], record[4], rounds, priority, in_a_row, waiting}
  end
end
return reply
