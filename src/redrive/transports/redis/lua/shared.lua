-- What the scripts of a queue have in common. It stands before each of them (scripts.py).
--
-- KEYS[1] is the queue's name with its hash tag, `redrive:{orders}`; every other key is that name and a suffix, so that
-- all of a queue's keys are in one slot of a cluster:
--   :jobs     hash  id -> the message, packed by the client and never read here
--   :state    hash  id -> what became of it so far (see below); only for jobs that were taken, delayed or sent again
--   :leases   zset  id by the time its lease ends, in milliseconds of the server's own clock
--   :delayed  zset  id by the time it is due
--   :ready:T:P  list  ids of tenant T with priority P, the next one first (T is empty where tenants do not matter)
--   :urgency:T  zset  the priorities that T has jobs of
--   :ring     zset  a place (turn and tenant) by its pass: who is next among those that wait (flow/fairness.py)
--   :places   hash  tenant -> the place in the ring that it took when it came; it is there for as long as it waits
--   :tenants  hash  tenant -> pass, total, time and turn of the last one, and its name, packed (`record_of`)
--   :seen     zset  tenant by the time of its last job, to forget the idle
--   :weights  hash  tenant -> its weight, where it is not 1
--   :terms    hash  governed, fair, weighted, mirror, base, increment, urgent; plain: every job that is queued has
--             priority 0; the rotation: pass, turn, tenant, streak; and paused: who paused it, as the client wrote it, and
--             paused_until, in milliseconds, where that has an end
--   :rate     hash  used, factor, cut, raised; :starts list "time:number" of what counts within the window: when it was
--             taken or, where a rate counts to the end, when it ended
--   :wake     list  one entry while there is something to look at: idle workers wait for it
--   :wake:L   list  one entry where the fetch with the lease's token L is to wait no longer; forgotten after a minute
--
-- Where `mirror` is a name such as `bull:email:send`, these say the same once more, for programs that know BullMQ:
--   bull:email:send:wait, :active, :delayed   zsets  ids of the ready, the leased and the delayed
--
-- A state is 16 characters of the lease's token (or NOBODY), 1 digit of marks, 6 digits of attempts with the one that the
-- lease is for, its `priority:tenant:`, and then its failures, packed by the client. Marks: LAPSED a lease on it ended
-- unsettled after its attempt had begun; BEGUN its attempt has begun, so it stays counted if the lease ends.
local BASE = KEYS[1]
local JOBS, STATE = BASE .. ':jobs', BASE .. ':state'
local LEASES, DELAYED = BASE .. ':leases', BASE .. ':delayed'
local RING, PLACES, TENANTS, SEEN = BASE .. ':ring', BASE .. ':places', BASE .. ':tenants', BASE .. ':seen'
local LIMITS, WEIGHTS = BASE .. ':terms', BASE .. ':weights'
local RATE, STARTS = BASE .. ':rate', BASE .. ':starts'
local WAKE = BASE .. ':wake'
local LAPSED, BEGUN = 1, 2
local NOBODY = '----------------'
local NO_ID = string.rep('\255', 65) -- no text, so nobody's id (see govern.lua)
local call = redis.call

local function milliseconds()
  local time = call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function lane(tenant, priority)
  return BASE .. ':ready:' .. tenant .. ':' .. priority
end

local function state_of(token, marks, attempt, priority, tenant, failures)
  return token .. string.format('%d%06d', marks, attempt) .. priority .. ':' .. tenant .. ':' .. failures
end

-- token, whether a lease lapsed (0 or LAPSED), attempt, priority, tenant, failures, whether it has begun
local function parsed(state)
  local _, last, priority, tenant = string.find(state, '^(-?%d+):(%x*):', 24)
  local marks = tonumber(string.sub(state, 17, 17))
  return string.sub(state, 1, 16), marks % BEGUN, tonumber(string.sub(state, 18, 23)),
    priority, tenant, string.sub(state, last + 1), marks >= BEGUN
end

-- Keep what mirrors the queue: `to` and `from` are wait, active, delayed, or nil.
local function mirrored(mirror, ids, from, to)
  if not mirror or #ids == 0 then return end
  if from then call('ZREM', mirror .. ':' .. from, unpack(ids)) end
  if not to then return end
  local time, members = call('TIME')[1], {}
  for i, id in ipairs(ids) do members[2 * i - 1], members[2 * i] = time, id end
  call('ZADD', mirror .. ':' .. to, unpack(members))
end

-- How a tenant has fared: its name, pass, total, time and turn of the last one.
local function record_of(packed)
  if string.byte(packed) > 127 then return cmsgpack.unpack(packed) end -- of an older Redrive: no pass begins like that
  local pass, total, time, turn, rest = struct.unpack('>dddd', packed)
  return {string.sub(packed, rest), pass, total, time, turn}
end

local function packed_record(record)
  return struct.pack('>dddd', record[2], record[3], record[4], record[5]) .. record[1]
end

-- A tenant has had so many more jobs, or so many fewer: one that comes back will be counted again.
local function count_processed(tenant, number)
  local known = call('HGET', TENANTS, tenant)
  if not known or known == '' then return end
  local record = record_of(known)
  record[3] = math.max(0, record[3] + number)
  call('HSET', TENANTS, tenant, packed_record(record))
end

local function weight(tenant)
  return tonumber(call('HGET', WEIGHTS, tenant) or 1)
end

-- A tenant that has something to do again takes a place behind those that wait.
local function join(tenant)
  if call('HEXISTS', PLACES, tenant) == 1 then return end
  local now = call('HMGET', LIMITS, 'pass', 'turn')
  local pass = tonumber(now[1] or 0) + 1 / weight(tenant)
  local known = call('HGET', TENANTS, tenant)
  if known then pass = math.max(pass, record_of(known)[2]) end
  local place = string.format('%014d', now[2] or 0) .. tenant
  call('ZADD', RING, string.format('%.17g', pass), place)
  call('HSET', PLACES, tenant, place)
end

-- These are ready: last of their lane (RPUSH), or first (LPUSH, the first of them given last).
local function offer(push, priority, tenant, ids, mirror, from)
  call(push, lane(tenant, priority), unpack(ids))
  call('ZADD', BASE .. ':urgency:' .. tenant, priority, priority)
  join(tenant)
  mirrored(mirror, ids, from, 'wait')
end

local function rouse()
  if call('LLEN', WAKE) == 0 then call('RPUSH', WAKE, 1) end
end
