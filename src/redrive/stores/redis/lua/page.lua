-- The next letters of an index, which is the union of some sorted sets, in order of score and seq. Writes nothing.
--
-- ARGV[1]  whether ascending (1, 0)
-- ARGV[2]  least score, ARGV[3] greatest score, as ZCOUNT takes them
-- ARGV[4]  score and ARGV[5] seq of where the page before ended; both empty: from the start
-- ARGV[6]  how many
-- ARGV[7]  whether with documents (1, 0)
-- ARGV[8]  msgpack: {"keys": [...]} the sorted sets by name,
--          or {"at": [states, categories, sources]}, or {"due": [priorities, sources]}; each a list, or false for all
-- Returns whether there may be more (1, 0), then of each its member, score, head, document and entry.

local ascending, least, greatest = ARGV[1] == '1', ARGV[2], ARGV[3]
local after_score, after_seq, wanted = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])

local function set_of(list)
  if not list then return nil end
  local set = {}
  for _, value in ipairs(list) do set[tostring(value)] = true end
  return set
end

-- Of the fields of a hash of counters, those whose parts are wanted, as names of sorted sets.
local function named(hash, pattern, prefix, lists)
  local first, second, third = set_of(lists[1]), set_of(lists[2]), set_of(lists[3])
  local keys = {}
  for _, field in ipairs(redis.call('HKEYS', base .. hash)) do
    local one, two, three = string.match(field, pattern)
    if (not first or first[one]) and (not second or second[two]) and (not third or third[three]) then
      keys[#keys + 1] = base .. prefix .. field
    end
  end
  return keys
end

local function keys_of(index)
  if index.at then return named(':counts', '^([^:]*):([^:]*):(.*)$', ':at:', index.at) end
  if index.due then return named(':waiting', '^([^:]*):(.*)$', ':due:', index.due) end
  local keys = {}
  for _, name in ipairs(index.keys) do keys[#keys + 1] = base .. name end
  return keys
end

-- How many members of one score stand before seq, or are it.
local function before(key, from, ties, through)
  local low, high = 0, ties
  while low < high do
    local middle = math.floor((low + high) / 2)
    local seq = seq_in(redis.call('ZRANGE', key, from + middle, from + middle)[1])
    if seq < after_seq or (through and seq == after_seq) then low = middle + 1 else high = middle end
  end
  return low
end

-- The ranks of a sorted set that are asked for: from `first`, up to and without `last`.
local function window(key)
  local below = redis.call('ZCOUNT', key, '-inf', greatest)
  local first = below - redis.call('ZCOUNT', key, least, greatest)
  if first < 0 then first = 0 end
  local last = below
  if after_score ~= '' then
    local start = redis.call('ZCOUNT', key, '-inf', '(' .. after_score)
    local ties = redis.call('ZCOUNT', key, after_score, after_score)
    local passed = start + before(key, start, ties, ascending)
    if ascending then first = math.max(first, passed) else last = math.min(last, passed) end
  end
  return first, last
end

local arms = {}
local keys = keys_of(cmsgpack.unpack(ARGV[8]))
local chunk = math.max(8, math.ceil(wanted * 2 / math.max(#keys, 1)))
if #keys == 1 then chunk = wanted end

local function fill(arm)
  local low, high = arm.first, math.min(arm.last, arm.first + chunk)
  if not ascending then low, high = math.max(arm.first, arm.last - chunk), arm.last end
  if low >= high then
    arm.member = nil
    return
  end
  arm.buffer = redis.call('ZRANGE', arm.key, low, high - 1, 'WITHSCORES')
  arm.at = ascending and 1 or #arm.buffer - 1
  if ascending then arm.first = high else arm.last = low end
end

local function show(arm)
  arm.member, arm.score = arm.buffer[arm.at], tonumber(arm.buffer[arm.at + 1])
end

local function step(arm)
  arm.at = arm.at + (ascending and 2 or -2)
  if not arm.buffer[arm.at] then fill(arm) end
  if arm.member then show(arm) end
end

local function comes_first(one, other)
  if one.score ~= other.score then return (one.score < other.score) == ascending end
  return (seq_in(one.member) < seq_in(other.member)) == ascending
end

-- `arms` is a heap: the one whose letter comes first is the first.
local function sift(at)
  while 2 * at <= #arms do
    local child = 2 * at
    if child < #arms and comes_first(arms[child + 1], arms[child]) then child = child + 1 end
    if not comes_first(arms[child], arms[at]) then return end
    arms[at], arms[child] = arms[child], arms[at]
    at = child
  end
end

for _, key in ipairs(keys) do
  local first, last = window(key)
  if first < last then
    local arm = {key = key, first = first, last = last}
    fill(arm)
    show(arm)
    arms[#arms + 1] = arm
  end
end
for at = math.floor(#arms / 2), 1, -1 do
  sift(at)
end

local reply, size, number = {0}, 0, 0
while #arms > 0 do
  if number >= wanted or size > LARGE then
    reply[1] = 1
    break
  end
  local best = arms[1]
  reply[#reply + 1] = best.member
  reply[#reply + 1] = exact(best.score)
  size = size + read(reply, string.sub(best.member, 6), ARGV[7] == '1')
  number = number + 1
  step(best)
  if not best.member then
    arms[1] = arms[#arms]
    arms[#arms] = nil
  end
  sift(1)
end
return reply
