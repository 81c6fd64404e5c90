#!lua flags=allow-oom
-- Count the attempts of leased jobs as begun: whatever becomes of their worker from now on, they were made.
--
-- KEYS[1]  the queue (shared.lua names every key)
-- ARGV     groups: a lease's token, the number of its ids, the ids
-- Returns  token and id of each whose lease was lost
local at, lost = 1, {}
while at <= #ARGV do
  local token, number, ids, written = ARGV[at], tonumber(ARGV[at + 1]), {}, {}
  for i = at + 2, at + 1 + number do ids[#ids + 1] = ARGV[i] end
  for i, state in ipairs(call('HMGET', STATE, unpack(ids))) do
    if state and string.sub(state, 1, 16) == token then
      local marks = tonumber(string.sub(state, 17, 17)) % BEGUN + BEGUN
      written[#written + 1] = ids[i]
      written[#written + 1] = token .. marks .. string.sub(state, 18)
    else
      lost[#lost + 1], lost[#lost + 2] = token, ids[i]
    end
  end
  if #written > 0 then call('HSET', STATE, unpack(written)) end
  at = at + 2 + number
end
return lost
