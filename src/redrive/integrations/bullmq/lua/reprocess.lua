#!lua
-- Sends failed jobs back to the workers of one queue of BullMQ, all of them or none in the way of another.
--
-- KEYS   1 failed          sorted set   jobs that have failed, by the time they did
--        2 completed       sorted set   jobs that are done
--        3 wait            list         jobs that are ready; workers take them from its right end
--        4 paused          list         the same while the queue is paused, in BullMQ before 6
--        5 prioritized     sorted set   jobs that are ready and have a priority
--        6 pc              number       counts those, so that equals keep their order
--        7 meta            hash         `paused`, `concurrency`, `version`, `opts.maxLenEvents`
--        8 active          list         jobs that are being worked on
--        9 marker          sorted set   wakes workers that wait for a job
--       10 events          stream       what happens, for whoever listens
--       11 redrive:sent    hash         ours: job -> attempts made before, what it was sent back with
-- ARGV   1 what the key of a job begins with
--        2 seconds that a note in `redrive:sent` is kept at most
--        then for each job: its id, our note, its data, and its hash as JSON (empty: it cannot be made anew)
-- Returns for each job:  1 sent   2 made anew and sent   0 it was on its way already   -1 it is gone   -2 it is done

local failed, completed, wait, paused, prioritized, counter = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local meta, active, marker, events, sent = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local base = ARGV[1]

local facts = redis.call('HMGET', meta, 'paused', 'concurrency', 'version', 'opts.maxLenEvents')
local is_paused = facts[1] and facts[1] ~= '0'
local limit = tonumber(facts[2] or '')
local is_full = limit and redis.call('LLEN', active) >= limit
local major = tonumber(string.match(facts[3] or '', ':(%d+)%.') or '')
local most_events = facts[4] or 10000
-- a paused queue of an older BullMQ has its ready jobs in another list
local ready = (is_paused and major and major < 6) and paused or wait

local function tell(id, ...)
    redis.call('XADD', events, 'MAXLEN', '~', most_events, '*', 'event', ...)
end

local function is_last_in(options)
    local ok, read = pcall(cjson.decode, options or '{}')
    return not (ok and type(read) == 'table' and read['lifo'] == true)
end

local function make_ready(id, key)
    local priority = tonumber(redis.call('HGET', key, 'priority') or '') or 0
    if priority > 0 then
        local turn = redis.call('INCR', counter) % 4294967296
        redis.call('ZADD', prioritized, priority * 4294967296 + turn, id)
    elseif is_last_in(redis.call('HGET', key, 'opts')) then
        redis.call('LPUSH', ready, id)
    else
        redis.call('RPUSH', ready, id)
    end
    if not is_paused and not is_full then
        redis.call('ZADD', marker, 0, '0')
    end
end

-- its parent waits for it again, if it has counted it as failed
local function rejoin_parent(key)
    local parent = redis.call('HGET', key, 'parentKey')
    if not parent or redis.call('EXISTS', parent) == 0 then
        return
    end
    local was_unsuccessful = redis.call('ZREM', parent .. ':unsuccessful', key)
    local was_ignored = redis.call('HDEL', parent .. ':failed', key)
    if was_unsuccessful + was_ignored > 0 then
        redis.call('SADD', parent .. ':dependencies', key)
    end
end

local function send(id, data)
    local key = base .. id
    if redis.call('ZREM', failed, id) == 0 then
        return redis.call('ZSCORE', completed, id) and -2 or 0
    end
    redis.call('HDEL', key, 'failedReason', 'finishedOn', 'processedOn')
    if redis.call('HGET', key, 'data') ~= data then
        redis.call('HSET', key, 'data', data) -- somebody has edited the letter
    end
    rejoin_parent(key)
    make_ready(id, key)
    tell(id, 'waiting', 'jobId', id, 'prev', 'failed')
    return 1
end

local function make_anew(id, fields)
    if fields == '' then
        return -1
    end
    local key = base .. id
    local made = cjson.decode(fields)
    redis.call('HSET', key, 'name', made['name'], 'data', made['data'], 'opts', made['opts'],
        'timestamp', made['timestamp'], 'delay', '0', 'priority', made['priority'])
    make_ready(id, key)
    tell(id, 'added', 'jobId', id, 'name', made['name'])
    tell(id, 'waiting', 'jobId', id)
    return 2
end

local answers = {}
for at = 3, #ARGV, 4 do
    local id, note, data, fields = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
    local answer
    if redis.call('EXISTS', base .. id) == 1 then
        answer = send(id, data)
    else
        answer = make_anew(id, fields)
    end
    if answer >= 0 then
        local made = redis.call('HGET', base .. id, 'atm') or '0'
        redis.call('HSET', sent, id, made .. ' ' .. note)
        redis.call('EXPIRE', sent, ARGV[2])
    end
    table.insert(answers, answer)
end
return answers
