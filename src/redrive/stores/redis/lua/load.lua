-- Letters by their ids. Writes nothing.
-- ARGV: whether with documents (1, 0), ids...
-- Returns head, document and entry of each, false for what there is not; of the first ones only, if they are large.

local reply, size = {}, 0
for number = 2, #ARGV do
  if size > LARGE then break end
  size = size + read(reply, ARGV[number], ARGV[1] == '1')
end
return reply
