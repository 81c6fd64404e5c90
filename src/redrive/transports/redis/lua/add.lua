#!lua
-- Put jobs into the queue. An id that is queued already stays as it is or, sent back from a letter, becomes this one.
--
-- KEYS[1]  the queue (shared.lua names every key)
-- ARGV     1 whether the caller knows the queue's terms (1 or 0); then groups: whether sent back (1 or 0), tenant's digest, tenant's name, priority, milliseconds to wait, attempts made,
--          number of jobs, and then an id and a packed message for each
-- Returns  how many are new; -1 where the server has forgotten the terms: nothing was added, and it is to be told again
local terms = call('HMGET', LIMITS, 'fair', 'mirror', 'governed', 'plain')
local fair, mirror, plain = terms[1], terms[2], terms[4]
if ARGV[1] == '1' and not terms[3] then return -1 end
local now, added, at = milliseconds(), 0, 2

-- Whoever had it has it no more: a late ack was meant for the copy.
local function become(id, packed, tried)
  call('HSET', JOBS, id, packed)
  local state = call('HGET', STATE, id)
  if state then
    local token, lapsed, _, priority, tenant = parsed(state)
    if token ~= NOBODY then lapsed = LAPSED end
    call('HSET', STATE, id, state_of(NOBODY, lapsed, tried, priority, tenant, ''))
  elseif tried > 0 then
    call('HSET', STATE, id, state_of(NOBODY, 0, tried, '0', '', ''))
  end
end

local function place(ids, priority, tenant, delay, tried)
  if tried > 0 or delay > 0 then
    local state = state_of(NOBODY, 0, tried, priority, tenant, '')
    for _, id in ipairs(ids) do call('HSET', STATE, id, state) end
  end
  if delay > 0 then
    for _, id in ipairs(ids) do call('ZADD', DELAYED, now + delay, id) end
    mirrored(mirror, ids, nil, 'delayed')
  else
    offer('RPUSH', priority, tenant, ids, mirror)
  end
end

local function introduce(tenant, name)
  if call('HSETNX', TENANTS, tenant, packed_record({name, 0, 0, 0, 0})) == 1 then call('ZADD', SEEN, now, tenant) end
end

while at <= #ARGV do
  local back, tenant, name, priority = ARGV[at] == '1', ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local delay, tried, number = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6])
  local fresh = {}
  for i = at + 7, at + 5 + 2 * number, 2 do
    if call('HSETNX', JOBS, ARGV[i], ARGV[i + 1]) == 1 then
      fresh[#fresh + 1] = ARGV[i]
    elseif back then
      become(ARGV[i], ARGV[i + 1], tried)
    end
  end
  at = at + 7 + 2 * number
  if plain and priority ~= '0' then
    call('HDEL', LIMITS, 'plain')
    plain = false
  end
  if #fresh > 0 then
    if fair then introduce(tenant, name) else tenant = '' end
    place(fresh, priority, tenant, delay, tried)
    added = added + #fresh
  end
end
if added > 0 then rouse() end
return added
