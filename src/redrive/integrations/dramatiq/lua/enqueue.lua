-- Put a message into a queue of Dramatiq, as its own dispatch does; one that is there already stays as it is.
--
-- KEYS[1]  the list of ids that wait
-- KEYS[2]  the hash of messages by their ids: those that wait, and those that a worker has
-- ARGV     1 the id, 2 the message
-- Returns  1 if it was put there, 0 if it was there already
if redis.call('HSETNX', KEYS[2], ARGV[1], ARGV[2]) == 0 then
  return 0
end
redis.call('RPUSH', KEYS[1], ARGV[1])
return 1
