#!lua flags=allow-oom
-- Write down how the queue is to be shared, so that those who add and those who fetch agree.
--
-- KEYS[1]  the queue (shared.lua names every key)
-- ARGV     1 whether tenants take turns (1 or 0); then a tenant's digest and its weight for each whose weight is not 1
-- Small sets are kept as lists that are searched from the front; one long member makes them tables for good.
for _, hash in ipairs({STATE, PLACES, TENANTS}) do call('HSET', hash, NO_ID, '') end
for _, set in ipairs({LEASES, RING}) do call('ZADD', set, '+inf', NO_ID) end
call('DEL', WEIGHTS)
if ARGV[1] == '1' then call('HSET', LIMITS, 'fair', 1) else call('HDEL', LIMITS, 'fair') end
if #ARGV > 1 then
  call('HSET', LIMITS, 'weighted', 1)
  for i = 2, #ARGV, 2 do call('HSET', WEIGHTS, ARGV[i], ARGV[i + 1]) end
else
  call('HDEL', LIMITS, 'weighted')
end
