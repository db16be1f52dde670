-- A FIFO in the dialect of the XDP queueing tester.
config.bpf.file = "./sched_fifo.bpf.o"

local flows = {}
for number = 1, 3 do
  flows[number] = Udp:new()
  flows[number].udp.dest = 9000 + number
end

test("packets of three flows leave as they arrived", function()
  for number, flow in ipairs(flows) do enqueue(flow, number) end
  for number, flow in ipairs(flows) do dequeue_cmp(flow, number) end
end)

test("a flow that arrived first sends all its packets first", function()
  for number = 1, 3 do enqueue(flows[1], number) end
  enqueue(flows[2], 1)
  for number = 1, 3 do dequeue_cmp(flows[1], number) end
  dequeue_cmp(flows[2], 1)
  expect_equal(xdq.currently_queued, 0)
end)
