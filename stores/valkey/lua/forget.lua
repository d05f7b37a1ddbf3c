-- Remove messages from a session, or replace the content of one.
-- KEYS: 1 messages  2 meta      ARGV: 1 'remove' or 'replace'  2 new content or ''  3.. ids
local wanted = {}
for index = 3, #ARGV do
    wanted[ARGV[index]] = true
end
local changed = 0
local items = redis.call('LRANGE', KEYS[1], 0, -1)
for index, item in ipairs(items) do
    local id = string.match(item, '"id":"(%x+)"')
    if id and wanted[id] then
        if ARGV[1] == 'remove' then
            redis.call('LREM', KEYS[1], 1, item)
            redis.call('HINCRBY', KEYS[2], 'bytes', -#item)
        else
            redis.call('LSET', KEYS[1], index - 1, ARGV[2])
            redis.call('HINCRBY', KEYS[2], 'bytes', #ARGV[2] - #item)
        end
        changed = changed + 1
    end
end
return changed
