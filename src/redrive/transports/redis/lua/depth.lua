#!lua flags=no-writes
-- How full the queue is: every job is ready, delayed or leased.
--
-- KEYS[1]  the queue (shared.lua names every key)
-- Returns  numbers of ready, delayed and leased
local now = milliseconds()
local delayed = call('ZCOUNT', DELAYED, string.format('(%.0f', now), '(inf')
local leased = call('ZCOUNT', LEASES, string.format('(%.0f', now), '(inf')
return {call('HLEN', JOBS) - delayed - leased, delayed, leased}
