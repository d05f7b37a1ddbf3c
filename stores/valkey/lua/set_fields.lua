-- Set variables (or the reasoning state) of a session within its bounds.
-- KEYS: 1 hash  2 meta  3 messages  4 sessions of the agent
-- ARGV: 1 max bytes  2 TTL s  3 session key  4.. field, value
local total = 0
local current = redis.call('HGETALL', KEYS[1])
local merged = {}
for index = 1, #current, 2 do
    merged[current[index]] = current[index + 1]
end
for index = 4, #ARGV, 2 do
    merged[ARGV[index]] = ARGV[index + 1]
end
for field, value in pairs(merged) do
    total = total + #field + #value
end
if total > tonumber(ARGV[1]) then
    return total
end
for index = 4, #ARGV, 2 do
    redis.call('HSET', KEYS[1], ARGV[index], ARGV[index + 1])
end
redis.call('SADD', KEYS[4], ARGV[3])
for index = 1, 4 do
    redis.call('EXPIRE', KEYS[index], ARGV[2])
end
return 0
