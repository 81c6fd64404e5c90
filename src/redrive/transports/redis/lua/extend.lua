#!lua flags=allow-oom
-- Renew leases.
--
-- KEYS[1]  the queue (shared.lua names every key)
-- ARGV     1 the length of a lease in milliseconds; then groups: a token, the number of its ids, the ids
-- Returns  token and id of each whose lease was lost
local ends, at, lost = milliseconds() + ARGV[1], 2, {}
while at <= #ARGV do
  local token, number = ARGV[at], tonumber(ARGV[at + 1])
  for i = at + 2, at + 1 + number do
    local state = call('HGET', STATE, ARGV[i])
    if state and string.sub(state, 1, 16) == token then
      call('ZADD', LEASES, 'XX', ends, ARGV[i])
    else
      lost[#lost + 1], lost[#lost + 2] = token, ARGV[i]
    end
  end
  at = at + 2 + number
end
return lost
