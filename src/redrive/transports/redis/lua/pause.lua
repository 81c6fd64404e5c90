#!lua flags=allow-oom
-- Pause the queue, or let it go on, and wake somebody who waits.
--
-- KEYS[1]  the queue (shared.lua names every key)
-- ARGV     1 `pause` or `resume`; to pause: 2 who and why, packed by the client, 3 milliseconds until it ends by
--          itself (empty: never)
-- Returns  who and why of the pause that holds now (the first one, if it was paused already), or that was ended; nil if none
local known = call('HMGET', LIMITS, 'paused', 'paused_until')
local is_over = not known[1] or (known[2] and tonumber(known[2]) <= milliseconds())
local held = not is_over and known[1] or nil
if ARGV[1] == 'pause' and is_over then
  held = ARGV[2]
  call('HSET', LIMITS, 'paused', held)
  if ARGV[3] == '' then
    call('HDEL', LIMITS, 'paused_until')
  else
    call('HSET', LIMITS, 'paused_until', string.format('%.0f', milliseconds() + tonumber(ARGV[3])))
  end
end
if ARGV[1] == 'resume' then call('HDEL', LIMITS, 'paused', 'paused_until') end
if ARGV[1] ~= 'pause' or ARGV[3] ~= '' then rouse() end
return held or false
