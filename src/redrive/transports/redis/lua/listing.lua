#!lua flags=no-writes
-- How the jobs of the queue stand: those in hand by the end of their lease, then the delayed by the time they are due, then
-- the ready as they would be taken by each tenant. Leases and moves nothing.
--
-- KEYS[1]  the queue (shared.lua names every key)
-- ARGV     1 `leased`, `delayed` or `ready`, or empty for all of them, 2 how many of these to pass over, 3 how many at most
-- Returns  for each: its id, `leased`, `delayed` or `ready`, milliseconds until its lease ends or it is due, its message and
--          its state
local wanted, skip, left = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local now, found = milliseconds(), {}
local later, by_now = string.format('(%.0f', now), string.format('%.0f', now)

local function show(id, kind, wait)
  if call('HEXISTS', JOBS, id) == 0 then return end -- sent away by hand
  local row = {id, kind, string.format('%.0f', wait), call('HGET', JOBS, id), call('HGET', STATE, id) or ''}
  for _, part in ipairs(row) do found[#found + 1] = part end
  left = left - 1
end

-- So many of a set, by their scores.
local function show_set(set, kind, from, to)
  if left <= 0 then return end
  local number = call('ZCOUNT', set, from, to)
  if skip >= number then
    skip = skip - number
    return
  end
  local rows = call('ZRANGEBYSCORE', set, from, to, 'WITHSCORES', 'LIMIT', skip, left)
  skip = 0
  for i = 1, #rows, 2 do
    if rows[i] ~= NO_ID then show(rows[i], kind, math.max(0, tonumber(rows[i + 1]) - now)) end
  end
end

local function show_lane(key)
  local number = call('LLEN', key)
  if skip >= number then
    skip = skip - number
    return
  end
  local ids = call('LRANGE', key, skip, skip + left - 1)
  skip = 0
  for _, id in ipairs(ids) do show(id, 'ready', 0) end
end

local function show_ready()
  show_set(LEASES, 'ready', '-inf', by_now) -- their lease has ended, and nobody has looked yet
  show_set(DELAYED, 'ready', '-inf', by_now)
  for _, place in ipairs(left > 0 and call('ZRANGE', RING, 0, -1) or {}) do
    local tenant = string.sub(place, 15)
    for _, priority in ipairs(place ~= NO_ID and call('ZRANGE', BASE .. ':urgency:' .. tenant, 0, -1) or {}) do
      if left > 0 then show_lane(lane(tenant, priority)) end
    end
  end
end

if wanted == '' or wanted == 'leased' then show_set(LEASES, 'leased', later, '(inf') end
if wanted == '' or wanted == 'delayed' then show_set(DELAYED, 'delayed', later, '(inf') end
if wanted == '' or wanted == 'ready' then show_ready() end
return found
