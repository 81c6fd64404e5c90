-- Put a job back into its queue, as FailedJobRegistry.requeue does; one that Redis has lost is made anew.
--
-- KEYS     1 the hash of the job, 2 the failed jobs of its queue, 3 the queue (ids that wait), 4 all queues,
--          5 the job's dependents, 6 its dependencies
-- ARGV     1 its id, 2 the time, 3 how many names and values follow that are ours, then those, then those of the job, for
--          one that is lost
-- Returns  'requeued', 'made', or the status of a job that is not dead: nothing but our fields is changed then, and not even
--          these for one that has finished or was canceled
local job, failed, queue, queues = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, now, ours = ARGV[1], ARGV[2], tonumber(ARGV[3])
local call = redis.call
local status = call('HGET', job, 'status')
if status == 'finished' or status == 'canceled' then
  return status
end

local function set(first, last)
  for at = first, last, 2 do
    call('HSET', job, ARGV[at], ARGV[at + 1])
  end
end

call('HDEL', job, 'redrive-letter', 'redrive-replay', 'redrive-retries', 'redrive-by-hand')
if status == 'queued' or status == 'started' or status == 'scheduled' or status == 'deferred' then
  set(4, 3 + ours)
  return status
end
local is_lost = call('HEXISTS', job, 'data') == 0
if is_lost then
  set(4 + ours, #ARGV)
end
set(4, 3 + ours)
call('HDEL', job, 'exc_info', 'redrive-failures')
call('HSET', job, 'status', 'queued', 'enqueued_at', now, 'started_at', '', 'ended_at', '')
for _, key in ipairs({ job, KEYS[5], KEYS[6] }) do
  call('PERSIST', key) -- while it was dead, its days were counted
end
local ttl = tonumber(call('HGET', job, 'ttl') or '')
if ttl and ttl > 0 then
  call('EXPIRE', job, ttl)
end
call('ZREM', failed, id)
call('SADD', queues, queue)
call('RPUSH', queue, id)
return is_lost and 'made' or 'requeued'
