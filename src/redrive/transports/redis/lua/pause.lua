#!lua flags=allow-oom
-- Hold the queue, or let it go on, or only wake somebody who waits.
--
-- KEYS[1]  the queue (shared.lua names every key)
-- ARGV     1 `pause`, `resume` or `rouse`
if ARGV[1] == 'pause' then call('HSET', LIMITS, 'paused', 1) end
if ARGV[1] == 'resume' then call('HDEL', LIMITS, 'paused') end
if ARGV[1] ~= 'pause' then rouse() end
