-- Let a summary take the place of messages that left the session, unless something was forgotten meanwhile.
-- KEYS: 1 meta  2 messages that left  3 ids of those in the summary
-- ARGV: 1 changes seen when they were read  2 summary  3 its origin  4 session TTL s  5 messages that leave before
--       they are summarised  6.. ids of the messages
-- Returns 1 when there are enough messages for another summary, or this one came too late; else 0
if redis.call('EXISTS', KEYS[1]) == 0 then -- the session ended
    redis.call('DEL', KEYS[2], KEYS[3])
    return 0
end
if (redis.call('HGET', KEYS[1], 'changes') or '0') ~= ARGV[1] then
    return 1
end
local covered = {}
for index = 6, #ARGV do
    covered[ARGV[index]] = true
    redis.call('SADD', KEYS[3], ARGV[index])
end
local first = redis.call('LINDEX', KEYS[2], 0)
while first and covered[string.match(first, '"id":"(%x+)"')] do
    redis.call('LPOP', KEYS[2])
    first = redis.call('LINDEX', KEYS[2], 0)
end
redis.call('HSET', KEYS[1], 'summary', ARGV[2], 'summary_origin', ARGV[3])
for index = 1, 3 do
    redis.call('EXPIRE', KEYS[index], ARGV[4])
end
if redis.call('LLEN', KEYS[2]) >= tonumber(ARGV[5]) then
    return 1
end
redis.call('HDEL', KEYS[1], 'asked')
return 0
