-- What the scripts on letters share. Every key begins with KEYS[1], `{prefix}:letters`, so all of them lie in one slot.
--
--   :heads      hash id -> head (msgpack, see codec.py; False stands for nothing)
--   :documents  hash id -> the rest of the letter
--   :versions   hash id/NUMBER -> facts, id/NUMBER/body -> body, of the versions before the newest
--   :seq        how many letters came
--   :at:STATE:CATEGORY:SOURCE, :group:GROUP, :tenant:TENANT   sorted sets by the time of creation
--   :due:PRIORITY:SOURCE   sorted set by the time of the next retry
--   :leases, :expiry       sorted sets by the end of the lease, and of the time to live
--   :counts     hash STATE:CATEGORY:SOURCE -> number of letters       :waiting   hash PRIORITY:SOURCE -> the same
--   :tallies    hash STATE:CATEGORY:LENGTH OF GROUP:GROUP SOURCE -> the same
--   :groups     hash group -> msgpack of type, message, category, first and last time
--   :counted, :series:…, :sparks:…   what happened over time (roll_up.lua)
--   KEYS[2]     where the store has entries: the sorted set of the open letters' entries
--   :aside      hash id -> entry, of letters that are not open
--   KEYS[3]     where entries have keys of their own too: what these begin with, before `:` and the id of the message
--
-- A member of an index is the seq in five bytes, and the id: so letters of one microsecond sort as they came.

local base, entries, names = KEYS[1], KEYS[2], KEYS[3]
local SEQ, STATE, CATEGORY, SOURCE, GROUP, TENANT, CREATED, NEXT_RETRY, EXPIRES = 1, 2, 3, 4, 5, 6, 7, 9, 10
local PRIORITY, OWNER, LEASE, SCORE, BODY_IN_ENTRY, VERSION = 11, 12, 13, 19, 20, 22
local CLOSED = {resolved = true, archived = true, sent = true}
local LARGE = 4 * 1024 * 1024 -- a reply is cut after so many bytes

local function seq_in(member)
  return (struct.unpack('>I5', member))
end

local function exact(number)
  return string.format('%.17g', number)
end

-- The entry of a letter, wherever it is; nil if somebody else took it.
local function entry_of(id, head)
  local aside = redis.call('HGET', base .. ':aside', id)
  if aside then return aside end
  local score = exact(head[SCORE])
  return redis.call('ZRANGEBYSCORE', entries, score, score)[1]
end

-- Appends head, document and entry of a letter to a reply, and tells how large they are. No document: it is gone.
local function read(reply, id, with_document)
  local head = redis.call('HGET', base .. ':heads', id)
  reply[#reply + 1] = head
  if not head then
    reply[#reply + 1], reply[#reply + 2] = false, false
    return 0
  end
  local document, entry = false, false
  if with_document then
    document = redis.call('HGET', base .. ':documents', id)
    if entries then
      local told = cmsgpack.unpack(head)
      local found = told[SCORE] and entry_of(id, told)
      if told[SCORE] and not found then document = false end
      if told[BODY_IN_ENTRY] then entry = found or false end
    end
  end
  reply[#reply + 1] = document
  reply[#reply + 1] = entry
  return #head + (document and #document or 0) + (entry and #entry or 0)
end
