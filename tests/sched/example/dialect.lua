-- Weighted fair queueing in the dialect of the XDP queueing tester, where weights are costs in 256ths.
config.bpf.file = "./sched_wfq.bpf.o"

local light, dear = Udp:new(), Udp:new()
light.udp.dest = 9001
light.udp.payload = create_payload(38)
dear.udp.dest = 9002
dear.udp.payload = create_payload(38)

set_time_ns(1000)
set_flow_weight(light, 256)
set_flow_weight(dear, 1024)
for number = 1, 4 do enqueue(dear, number) end
for number = 1, 4 do enqueue(light, number) end

-- Start times: dear 0, 400, 800, 1200; light 0, 100, 200, 300.
dequeue_cmp(dear, 1)
for number = 1, 4 do dequeue_cmp(light, number) end
for number = 2, 4 do dequeue_cmp(dear, number) end
if dequeue() then fail("the scheduler is not empty") end
