-- Tests of @NAME@. Run: fairpath sched test @NAME@.c @NAME@.lua

local function packets_of(flow, count)
  local packets = {}
  for i = 1, count do
    packets[i] = udp{flow = flow, length = 1000, label = "flow " .. flow .. ", packet " .. i}
  end
  return packets
end

-- Two flows take turns, independent of the arrival order of their packets.
local a, b = packets_of(1, 3), packets_of(2, 3)
for _, packet in ipairs(a) do enqueue(packet) end
for _, packet in ipairs(b) do enqueue(packet) end
expect_order{a[1], b[1], a[2], b[2], a[3], b[3]}
expect_empty()

-- A new flow leaves before a flow with a queue, because of its head start of 3,000 bytes.
local busy, new = packets_of(3, 8), packets_of(4, 4)
for _, packet in ipairs(busy) do enqueue(packet) end
for i = 1, 5 do dequeue_cmp(busy[i]) end
for _, packet in ipairs(new) do enqueue(packet) end
expect_order{new[1], new[2], new[3], new[4], busy[6], busy[7], busy[8]}
expect_empty()
