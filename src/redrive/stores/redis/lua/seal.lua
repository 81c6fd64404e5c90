-- Makes a draft of a selection the ledger of its replay, if it has none yet. One of several who froze it wins.
-- KEYS[1]  set of replays that are frozen
-- KEYS[2]  hash of lines and KEYS[3] sorted set of the selected, as drafted
-- KEYS[4]  and KEYS[5]: where they belong
-- ARGV[1]  the replay
-- Returns how many lines its ledger has.

if redis.call('SADD', KEYS[1], ARGV[1]) == 1 then
  for number = 2, 3 do
    if redis.call('EXISTS', KEYS[number]) == 1 then
      redis.call('RENAME', KEYS[number], KEYS[number + 2])
      redis.call('PERSIST', KEYS[number + 2])
    end
  end
else
  redis.call('UNLINK', KEYS[2], KEYS[3])
end
return redis.call('HLEN', KEYS[4])
