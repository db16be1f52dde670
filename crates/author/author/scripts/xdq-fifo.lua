-- A FIFO in the dialect of the XDP queueing tester.
config.bpf.file = "./sched_fifo.bpf.o"

local flows = {}
for number = 1, 3 do
  flows[number] = Udp:new()
  flows[number].udp.dest = 9000 + number
end

for number, flow in ipairs(flows) do enqueue(flow, number) end
for number, flow in ipairs(flows) do dequeue_cmp(flow, number) end
