-- Changes letters: each only if its head is still the one that was read. Whoever loses reads again.
--
-- ARGV[1]  how many letters; then of each
--            id, its head as it was read (empty: there is no such letter), its new head (empty: delete it),
--            its new document (empty: as it was), its new entry (empty: as it was),
--            what is counted (empty: nothing): b buried, a buried again, r resolved, and the start of that minute
--          then of each group among them: its name, and msgpack of type, message, category, first and last time
-- Returns a string with 1 for each letter that was changed, and 0 for each that was not.

local SLOTS = 1024 -- parts of a millisecond that keep entries apart; a double has room for them until 2248
local counted = {[':counts'] = {}, [':tallies'] = {}, [':waiting'] = {}}

local function member_of(id, head)
  return struct.pack('>I5', head[SEQ]) .. id
end

-- Every index a letter stands in, and its score there.
local function places(head)
  local created = exact(head[CREATED])
  local found = {[base .. ':group:' .. head[GROUP]] = created}
  found[base .. ':at:' .. head[STATE] .. ':' .. head[CATEGORY] .. ':' .. head[SOURCE]] = created
  if head[TENANT] then found[base .. ':tenant:' .. head[TENANT]] = created end
  if head[NEXT_RETRY] then
    found[base .. ':due:' .. exact(head[PRIORITY]) .. ':' .. head[SOURCE]] = exact(head[NEXT_RETRY])
  end
  if head[OWNER] and head[LEASE] then found[base .. ':leases'] = exact(head[LEASE]) end
  if head[EXPIRES] then found[base .. ':expiry'] = exact(head[EXPIRES]) end
  return found
end

local function count(hash, field, by)
  local fields = counted[hash]
  fields[field] = (fields[field] or 0) + by
end

local function count_letter(head, by)
  local kind = head[STATE] .. ':' .. head[CATEGORY] .. ':'
  count(':counts', kind .. head[SOURCE], by)
  count(':tallies', kind .. #head[GROUP] .. ':' .. head[GROUP] .. head[SOURCE], by)
  if head[NEXT_RETRY] then count(':waiting', exact(head[PRIORITY]) .. ':' .. head[SOURCE], by) end
end

local function index(id, old, new)
  local was, is = old and places(old) or {}, new and places(new) or {}
  local same = old and new and old[SEQ] == new[SEQ]
  for key, score in pairs(was) do
    if not (same and is[key] == score) then redis.call('ZREM', key, member_of(id, old)) end
  end
  for key, score in pairs(is) do
    if not (same and was[key] == score) then redis.call('ZADD', key, score, member_of(id, new)) end
  end
  if old then count_letter(old, -1) end
  if new then count_letter(new, 1) end
end

-- A score from this on that no entry has. Steps grow: of thousands of one millisecond each finds its own soon.
local function free(score)
  local step = 1 / SLOTS
  while redis.call('ZCOUNT', entries, exact(score), exact(score)) > 0 do
    score, step = score + step, step * 2
  end
  return score
end

-- The key of an entry's own. The id of the message is the first field of its document: msgpack of a text (codec.py).
local function name_of(id, document)
  if document == '' then document = redis.call('HGET', base .. ':documents', id) or '' end
  local start = string.byte(document, 1) == 0xdc and 4 or 2 -- after the head of an array, long or short
  local kind, short, long = string.byte(document, start, start + 2)
  if not kind then return nil end
  local from, length = start + 1, kind - 0xa0
  if kind == 0xd9 then from, length = start + 2, short end
  if kind == 0xda then from, length = start + 3, short * 256 + long end
  return names .. ':' .. string.sub(document, from, from + length - 1)
end

-- An open letter has such a key, with the score of its entry; a closed one has none.
local function keep_name(id, new, document)
  local name = name_of(id, document)
  if not name then return end
  if new and not CLOSED[new[STATE]] then
    redis.call('SET', name, string.format('%.0f', math.floor(new[SCORE])))
  else
    redis.call('DEL', name)
  end
end

local function take_entry(id, head)
  local entry = entry_of(id, head)
  if redis.call('HDEL', base .. ':aside', id) == 0 and entry then redis.call('ZREM', entries, entry) end
  return entry
end

local function put_entry(id, head, entry)
  if CLOSED[head[STATE]] or redis.call('ZSCORE', entries, entry) then
    redis.call('HSET', base .. ':aside', id, entry)
  else
    head[SCORE] = free(head[SCORE])
    redis.call('ZADD', entries, exact(head[SCORE]), entry)
  end
end

-- Where the entry of a letter has to be, given what it was and is, and a new entry if there is one.
local function keep_entry(id, old, new, entry)
  if entry ~= '' then
    if old and old[SCORE] then take_entry(id, old) end
    if new[SCORE] == math.floor(new[SCORE]) then
      new[SCORE] = new[SCORE] + (new[SEQ] % SLOTS) / SLOTS
    end
    put_entry(id, new, entry)
  elseif old and old[SCORE] and (not new or CLOSED[old[STATE]] ~= CLOSED[new[STATE]]) then
    local kept = take_entry(id, old)
    if new and kept then put_entry(id, new, kept) end
  end
end

local function change(id, was, is, document, entry)
  local old, new = was ~= '' and cmsgpack.unpack(was), is ~= '' and cmsgpack.unpack(is)
  if new and new[SEQ] == 0 then new[SEQ] = redis.call('INCR', base .. ':seq') end
  if entries then keep_entry(id, old, new, entry) end
  if names and (entry ~= '' or not new or CLOSED[old[STATE]] ~= CLOSED[new[STATE]]) then keep_name(id, new, document) end
  if new then
    redis.call('HSET', base .. ':heads', id, cmsgpack.pack(new))
    if document ~= '' then redis.call('HSET', base .. ':documents', id, document) end
  else
    redis.call('HDEL', base .. ':heads', id)
    redis.call('HDEL', base .. ':documents', id)
    for number = 0, (old and old[VERSION] or 0) - 1 do
      redis.call('HDEL', base .. ':versions', id .. '/' .. number, id .. '/' .. number .. '/body')
    end
  end
  index(id, old, new)
end

local function add_up()
  for hash, fields in pairs(counted) do
    for field, by in pairs(fields) do
      if by ~= 0 and redis.call('HINCRBY', base .. hash, field, by) <= 0 then
        redis.call('HDEL', base .. hash, field)
      end
    end
  end
end

local kinds, order = {}, {}

local function count_kind(at, outcome, head, group)
  local kind = table.concat({at, outcome, head[CATEGORY], #group, group, head[SOURCE]}, ':')
  if not kinds[kind] then
    kinds[kind] = {tonumber(at), outcome, head[SOURCE], head[CATEGORY], group, 0}
    order[#order + 1] = kinds[kind]
  end
  kinds[kind][6] = kinds[kind][6] + 1
end

-- What a change counts over time; summed up later (roll_up.lua).
local function count_in_time(counted, head)
  local what, at = string.sub(counted, 1, 1), string.sub(counted, 2)
  if what == 'r' then
    count_kind(at, 'resolved', head, '')
  else
    count_kind(at, 'buried', head, head[GROUP])
    if what == 'a' then count_kind(at, 'again', head, '') end
  end
end

local function is_in_use(group)
  return redis.call('EXISTS', base .. ':group:' .. group) == 1
end

local function describe(group, told)
  local known = redis.call('HGET', base .. ':groups', group)
  local new = cmsgpack.unpack(told)
  if known then
    local old = cmsgpack.unpack(known)
    new = {old[1], old[2], old[3], math.min(old[4], new[4]), math.max(old[5], new[5])}
  end
  if is_in_use(group) then redis.call('HSET', base .. ':groups', group, cmsgpack.pack(new)) end
end

local won, left = {}, {}
local letters = tonumber(ARGV[1])
for number = 0, letters - 1 do
  local at = 2 + number * 6
  local id, was = ARGV[at], ARGV[at + 1]
  local wins = (redis.call('HGET', base .. ':heads', id) or '') == was
  won[#won + 1] = wins and '1' or '0'
  if wins then
    change(id, was, ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
    if was ~= '' then left[cmsgpack.unpack(was)[GROUP]] = true end
    if ARGV[at + 5] ~= '' then count_in_time(ARGV[at + 5], cmsgpack.unpack(ARGV[at + 2])) end
  end
end
add_up()
if #order > 0 then redis.call('RPUSH', base .. ':counted', cmsgpack.pack(order)) end
for at = 2 + letters * 6, #ARGV, 2 do
  describe(ARGV[at], ARGV[at + 1])
end
for group in pairs(left) do
  if not is_in_use(group) then redis.call('HDEL', base .. ':groups', group) end
end
return table.concat(won)
