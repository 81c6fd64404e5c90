#!lua flags=allow-oom
-- Carry out what was decided of leased jobs; a lease that is lost has no say. It may run when memory is full.
--
-- KEYS[1]  the queue (shared.lua names every key)
-- ARGV     1 the window of a rate that is to be halved because a target throttles us, in milliseconds (0: it does not);
--          2 whether the rate counts to the end (1 or 0); then groups: a lease's token, numbers of done, retried and released, the done's ids, and for each retried its
--          id, milliseconds to wait and failures, and for each released its id and milliseconds to wait
-- Returns  token, id and what there is instead, of each whose lease was lost: `gone`, `free` (it waits), `held` (by another)
local now, at, lost, offered, begun_ones = milliseconds(), 3, {}, false, 0
local terms = call('HMGET', LIMITS, 'mirror', 'fair')
local mirror, fair = terms[1], terms[2]

local function ours(token, ids)
  local held = {}
  if #ids == 0 then return held end
  for i, state in ipairs(call('HMGET', STATE, unpack(ids))) do
    local holder = state and string.sub(state, 1, 16)
    if holder == token then
      held[#held + 1] = ids[i]
      if string.byte(state, 17) >= 50 then begun_ones = begun_ones + 1 end -- a digit of BEGUN or more
    else
      local instead = not state and 'gone' or holder == NOBODY and 'free' or 'held'
      lost[#lost + 1], lost[#lost + 2], lost[#lost + 3] = token, ids[i], instead
    end
  end
  return held
end

local function done(ids)
  if #ids == 0 then return end
  call('HDEL', JOBS, unpack(ids))
  call('HDEL', STATE, unpack(ids))
  call('ZREM', LEASES, unpack(ids))
  mirrored(mirror, ids, 'active', nil)
end

local function put_back(push, id, wait, attempts, failures)
  local _, lapsed, attempt, priority, tenant, known = parsed(call('HGET', STATE, id))
  call('HSET', STATE, id, state_of(NOBODY, lapsed, attempt - attempts, priority, tenant, failures or known))
  call('ZREM', LEASES, id)
  if fair then count_processed(tenant, -1) end
  if wait > 0 then
    call('ZADD', DELAYED, now + wait, id)
    mirrored(mirror, {id}, 'active', 'delayed')
  else
    offer(push, priority, tenant, {id}, mirror, 'active')
  end
  offered = true
end

local function is_ours(token, id)
  return #ours(token, {id}) == 1
end

local function slow_down(window)
  local known = call('HMGET', RATE, 'factor', 'cut')
  if now - tonumber(known[2] or 0) < window / 6 then return end
  call('HSET', RATE, 'factor', tonumber(known[1] or 1) / 2, 'cut', now, 'raised', now)
end

while at <= #ARGV do
  local token, finished = ARGV[at], tonumber(ARGV[at + 1])
  local retried, released = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  at = at + 4
  local ids = {}
  for i = at, at + finished - 1 do ids[#ids + 1] = ARGV[i] end
  done(ours(token, ids))
  at = at + finished
  for i = at, at + 3 * retried - 1, 3 do
    if is_ours(token, ARGV[i]) then put_back('RPUSH', ARGV[i], tonumber(ARGV[i + 1]), 0, ARGV[i + 2]) end
  end
  at = at + 3 * retried
  for i = at + 2 * released - 2, at, -2 do -- the last one first, so that each is put before those behind it
    if is_ours(token, ARGV[i]) then put_back('LPUSH', ARGV[i], tonumber(ARGV[i + 1]), 1) end
  end
  at = at + 2 * released
end
if offered then rouse() end
if ARGV[2] == '1' and begun_ones > 0 then
  call('RPUSH', STARTS, string.format('%.0f:%d', now, begun_ones))
  call('HINCRBY', RATE, 'used', begun_ones)
end
if tonumber(ARGV[1]) > 0 then slow_down(tonumber(ARGV[1])) end
return lost
