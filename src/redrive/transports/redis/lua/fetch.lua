#!lua flags=allow-oom
-- Move what is due and what was held too long to the ready, and lease the next ones, as fairness and the rate allow.
-- It may run when memory is full: what runs has to end.
--
-- KEYS[1]  the queue (shared.lua names every key)
-- ARGV     1 how many at most, 2 the lease's token, 3 its length in milliseconds, 4 how many may be taken in a window
--          (0: any number), 5 that window in milliseconds, 6 whether the rate adapts (1 or 0), 7 most in a row of a tenant,
--          8 whether the rate counts to the end: what is leased counts, and what ended within the window (1 or 0),
--          9 whether the attempts begin at once (1), or the client will say which have begun (0)
-- Returns  milliseconds until there may be more, and the leased: ids, packed messages, states (empty for a first attempt that
--          begins at once, as almost all are); only -1 where the server has forgotten the terms, and is to be told again
local limit, token, lease = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local most, window, adapts, in_a_row = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6] == '1', tonumber(ARGV[7])
local to_the_end, begins = ARGV[8] == '1', ARGV[9] == '1'
local LONGEST, AT_ONCE, LATELY, IDLE = 3600000, 1000, 10000, 7 * 86400000
local now = milliseconds()
local limits =
  call('HMGET', LIMITS, 'paused', 'fair', 'weighted', 'pass', 'turn', 'tenant', 'streak', 'mirror', 'governed', 'plain',
    'paused_until')
local paused, fair, weighted, mirror, plain = limits[1], limits[2], limits[3], limits[8], limits[10]
local paused_until = tonumber(limits[11] or now + LONGEST)
if not limits[9] then return {-1} end

-- So many count for a window from now on.
local function ended(number)
  if number == 0 then return end
  call('RPUSH', STARTS, string.format('%.0f:%d', now, number))
  call('HINCRBY', RATE, 'used', number)
end

-- Those of that set whose time has come are ready.
local function ripen(set, lapse)
  local ids = call('ZRANGEBYSCORE', set, '-inf', now, 'LIMIT', 0, AT_ONCE)
  if #ids == 0 then return end
  local lanes, order, begun_ones = {}, {}, 0
  for i, state in ipairs(call('HMGET', STATE, unpack(ids))) do
    if state and call('HEXISTS', JOBS, ids[i]) == 1 then
      local holder, lapsed, attempt, priority, tenant, failures, begun = parsed(state)
      if lapse then
        if begun then
          lapsed, begun_ones = LAPSED, begun_ones + 1
        elseif holder ~= NOBODY then -- nobody: it was sent back meanwhile, and counts from there
          attempt = attempt - 1 -- its worker died with it, or never heard of it: nobody saw that attempt
        end
        call('HSET', STATE, ids[i], state_of(NOBODY, lapsed, attempt, priority, tenant, failures))
        if fair then count_processed(tenant, -1) end
      end
      local name = priority .. ':' .. tenant
      if not lanes[name] then
        lanes[name] = {priority, tenant, {}}
        order[#order + 1] = name
      end
      table.insert(lanes[name][3], ids[i])
    else
      mirrored(mirror, {ids[i]}, lapse and 'active' or 'delayed', nil)
    end
  end
  call('ZREM', set, unpack(ids))
  if lapse and to_the_end then ended(begun_ones) end
  for _, name in ipairs(order) do
    local priority, tenant, some = unpack(lanes[name])
    offer('RPUSH', priority, tenant, some, mirror, lapse and 'active' or 'delayed')
  end
end

-- How many may be taken now; if none, when one may.
local function capacity()
  if most == 0 then return limit, LONGEST end
  local known = call('HMGET', RATE, 'used', 'factor', 'raised')
  local used, factor = tonumber(known[1] or 0), tonumber(known[2] or 1)
  local oldest = call('LINDEX', STARTS, 0)
  while oldest do
    local at, number = string.match(oldest, '^(%d+):(%d+)$')
    if tonumber(at) > now - window then break end
    call('LPOP', STARTS)
    used = used - number
    oldest = call('LINDEX', STARTS, 0)
  end
  if not oldest then used = 0 end
  if not adapts then
    factor = 1
  elseif factor < 1 and now - tonumber(known[3] or 0) >= window then
    factor = math.min(1, factor + 0.1)
    call('HSET', RATE, 'factor', factor, 'raised', now)
  end
  call('HSET', RATE, 'used', used)
  local free = math.max(1, math.floor(most * factor + 1e-9)) - used
  local wait = oldest and tonumber(string.match(oldest, '^%d+')) + window - now or LONGEST
  if to_the_end then -- what is leased ends now at the earliest
    free = free - call('ZCARD', LEASES) + (call('ZSCORE', LEASES, NO_ID) and 1 or 0)
    wait = math.min(wait, window)
  end
  return math.max(0, math.min(limit, free)), free > 0 and LONGEST or wait
end

-- The rotation, as flow/fairness.py says it. Its head is read, turned here, and written back.
local pass, turn, last, streak = tonumber(limits[4] or 0), tonumber(limits[5] or 0), limits[6], tonumber(limits[7] or 0)
local ring, is_whole, first, placed, records = {}, true, {}, {}, {}
local ids, prefixes, seen = {}, {}, {}

-- As much of the ring as so many turns need, two to choose from at each.
local function read_ring(turns)
  local rows, tenants = call('ZRANGE', RING, 0, turns, 'WITHSCORES'), {}
  ring, first, placed = {}, {}, {}
  is_whole = #rows < 2 * (turns + 1)
  for i = 1, #rows, 2 do
    local tenant = string.sub(rows[i], 15)
    if rows[i] == NO_ID then
      is_whole = true
      break
    end
    ring[#ring + 1] = {tonumber(rows[i + 1]), rows[i], tenant}
    if not records[tenant] then tenants[#tenants + 1] = tenant end
    first[tenant] = rows[i]
  end
  if not fair or #tenants == 0 then return end
  for i, known in ipairs(call('HMGET', TENANTS, unpack(tenants))) do
    records[tenants[i]] = known and record_of(known) or {'', 0, 0, 0, 0}
  end
end

-- Who is next: where it stands in the ring, how many it may have, and the part of a turn that it is charged.
local function choose(left)
  local tenant = ring[1][3]
  if not ring[2] then return 1, left, 1 end
  if tenant == last and streak >= in_a_row then
    if weighted then return 2, 1, 1 / in_a_row end
    return 2, math.min(left, in_a_row), 1
  end
  return 1, math.min(left, tenant == last and in_a_row - streak or in_a_row), 1
end

-- Take that many of its most urgent ones; how many there were, and whether it has more.
local function pop(tenant, number)
  local urgency, taken, is_plain = BASE .. ':urgency:' .. tenant, 0, plain
  while taken < number do
    local priority = is_plain and '0' or call('ZRANGE', urgency, 0, 0)[1]
    if not priority then return taken, false end
    local key, prefix, wanted = lane(tenant, priority), priority .. ':' .. tenant .. ':', number - taken
    local some = call('LPOP', key, wanted) or {}
    for _, id in ipairs(some) do
      ids[#ids + 1] = id
      prefixes[#prefixes + 1] = prefix
    end
    taken = taken + #some
    if #some < wanted or call('EXISTS', key) == 0 then
      call('ZREM', urgency, priority)
      is_plain = false -- if it has others all the same, they are looked for
    elseif taken == number then
      return taken, true
    end
  end
  return taken, call('EXISTS', urgency) == 1
end

-- Among those of the head; one that comes behind them stands where others are that were not read.
local function insert(entry)
  local at = #ring + 1
  while at > 1 and (ring[at - 1][1] > entry[1] or (ring[at - 1][1] == entry[1] and ring[at - 1][2] > entry[2])) do
    at = at - 1
  end
  if at <= #ring or is_whole then table.insert(ring, at, entry) end
end

local function serve(at, allowed, charge)
  local score, _, tenant = unpack(ring[at])
  local taken, has_more = pop(tenant, allowed)
  streak = tenant == last and streak + taken or taken
  last = tenant
  if charge == 1 then pass = math.max(pass, score) end
  local record = records[tenant]
  if record then
    if now - record[4] > LATELY then seen[#seen + 1], seen[#seen + 2] = string.format('%.0f', now), tenant end
    record[3], record[4] = record[3] + taken, now
  end
  -- a turn that the limit cut short goes on with the next fetch
  if has_more and #ids == limit and taken < in_a_row and streak < in_a_row then return end
  turn = turn + 1
  local its_pass = score + charge / (weighted and weight(tenant) or 1)
  if record then record[2], record[5] = its_pass, turn end
  table.remove(ring, at)
  placed[tenant] = has_more and {its_pass, string.format('%014d', turn) .. tenant, tenant}
  if has_more then insert(placed[tenant]) end
end

local function each(command, key, values)
  if #values > 0 then call(command, key, unpack(values)) end
end

local function write_ring()
  local gone, came, left = {}, {}, {}
  for tenant, entry in pairs(placed) do -- false: it has nothing to do any more
    gone[#gone + 1] = first[tenant]
    if entry then
      came[#came + 1], came[#came + 2] = entry[1], entry[2] -- Redis takes all 17 digits of a number
    else
      left[#left + 1] = tenant
    end
  end
  each('ZREM', RING, gone)
  each('ZADD', RING, came)
  each('HDEL', PLACES, left)
  call('HSET', LIMITS, 'pass', string.format('%.17g', pass), 'turn', turn, 'tenant', last or '', 'streak', streak)
end

local function write_records()
  local packed = {}
  for tenant, record in pairs(records) do
    if record[4] == now then packed[#packed + 1], packed[#packed + 2] = tenant, packed_record(record) end
  end
  each('HSET', TENANTS, packed)
  each('ZADD', SEEN, seen)
  for _, tenant in ipairs(call('ZRANGEBYSCORE', SEEN, '-inf', now - IDLE, 'LIMIT', 0, 10)) do
    if call('HEXISTS', PLACES, tenant) == 0 then
      call('ZREM', SEEN, tenant)
      call('HDEL', TENANTS, tenant)
    end
  end
end

local function leased()
  local jobs, states, old = call('HMGET', JOBS, unpack(ids)), {}, call('HMGET', STATE, unpack(ids))
  local written, ends, until_then = {}, {}, string.format('%.0f', now + lease)
  local marks = begins and BEGUN or 0
  local first_time = marks .. '000001'
  for i, id in ipairs(ids) do
    local state
    if old[i] then
      local _, lapsed, attempt, _, _, failures = parsed(old[i])
      state = token .. string.format('%d%06d', lapsed + marks, attempt + 1) .. prefixes[i] .. failures
      states[i] = state
    else
      state = token .. first_time .. prefixes[i]
      states[i] = begins and '' or state
    end
    written[2 * i - 1], written[2 * i] = id, state
    ends[2 * i - 1], ends[2 * i] = until_then, id
  end
  call('HSET', STATE, unpack(written))
  call('ZADD', LEASES, unpack(ends))
  return jobs, states
end

local function first_of(set)
  return tonumber(call('ZRANGE', set, 0, 0, 'WITHSCORES')[2] or now + LONGEST) - now
end

ripen(LEASES, true)
ripen(DELAYED, false)
local wait = LONGEST
if paused and paused_until > now then
  limit, wait = 0, paused_until - now
else
  limit, wait = capacity()
end
while #ids < limit do
  read_ring(math.ceil((limit - #ids) / in_a_row) + 1)
  if #ring == 0 then break end
  while #ids < limit and #ring > (is_whole and 0 or 1) do serve(choose(limit - #ids)) end
  write_ring()
end
if limit > 0 and (#ring > 0 or not is_whole) then rouse() else call('DEL', WAKE) end
if #ids == 0 then return {math.max(0, math.min(wait, first_of(LEASES), first_of(DELAYED)))} end
if most > 0 and not to_the_end then ended(#ids) end
mirrored(mirror, ids, 'wait', 'active')
if fair then write_records() end
local jobs, states = leased()
return {0, ids, jobs, states}
