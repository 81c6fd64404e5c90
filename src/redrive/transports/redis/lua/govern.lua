#!lua flags=allow-oom
-- Write down how the queue is to be shared, so that those who add and those who fetch agree.
--
-- KEYS[1]  the queue (shared.lua names every key)
-- ARGV     1 whether tenants take turns (1 or 0), 2 the name that mirrors the queue (`-`: as it is; empty: none), 3 to 5
--          the priorities that are shown: the first, how fast it falls, the last; then a tenant's digest and its weight for
--          each whose weight is not 1
-- Small sets are kept as lists that are searched from the front; one long member makes them tables for good.
for _, hash in ipairs({STATE, PLACES, TENANTS}) do call('HSET', hash, NO_ID, '') end
for _, set in ipairs({LEASES, RING}) do call('ZADD', set, '+inf', NO_ID) end
if call('HLEN', JOBS) == 0 then call('HSET', LIMITS, 'plain', 1) end
call('DEL', WEIGHTS)
call('HSET', LIMITS, 'governed', 1, 'base', ARGV[3], 'increment', ARGV[4], 'urgent', ARGV[5])
if ARGV[1] == '1' then call('HSET', LIMITS, 'fair', 1) else call('HDEL', LIMITS, 'fair') end
if #ARGV > 5 then
  call('HSET', LIMITS, 'weighted', 1)
  for i = 6, #ARGV, 2 do call('HSET', WEIGHTS, ARGV[i], ARGV[i + 1]) end
else
  call('HDEL', LIMITS, 'weighted')
end

-- What there is now, as its mirror. The lists are found by the places in the ring, and by what is urgent there.
local function rebuild(name)
  for _, part in ipairs({'wait', 'active', 'delayed'}) do call('DEL', name .. ':' .. part) end
  for part, set in pairs({active = LEASES, delayed = DELAYED}) do
    for _, id in ipairs(call('ZRANGE', set, 0, -1)) do
      if id ~= NO_ID then mirrored(name, {id}, nil, part) end
    end
  end
  for _, tenant in ipairs(call('HKEYS', PLACES)) do
    for _, priority in ipairs(call('ZRANGE', BASE .. ':urgency:' .. tenant, 0, -1)) do
      for _, id in ipairs(call('LRANGE', lane(tenant, priority), 0, -1)) do mirrored(name, {id}, nil, 'wait') end
    end
  end
end

local known = call('HGET', LIMITS, 'mirror')
if ARGV[2] == '-' or ARGV[2] == (known or '') then return end
if known then
  for _, part in ipairs({'wait', 'active', 'delayed'}) do call('DEL', known .. ':' .. part) end
end
if ARGV[2] == '' then
  call('HDEL', LIMITS, 'mirror')
else
  call('HSET', LIMITS, 'mirror', ARGV[2])
  rebuild(ARGV[2])
end
