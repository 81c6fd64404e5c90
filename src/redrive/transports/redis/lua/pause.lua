#!lua flags=allow-oom
-- Hold the queue, or let it go on, and wake somebody who waits.
--
-- KEYS[1]  the queue (shared.lua names every key)
-- ARGV     1 `pause` or `resume`
if ARGV[1] == 'pause' then
  call('HSET', LIMITS, 'paused', 1)
else
  call('HDEL', LIMITS, 'paused')
  rouse()
end
