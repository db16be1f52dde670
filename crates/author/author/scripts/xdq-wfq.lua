-- Weighted fair queueing in the dialect of the XDP queueing tester, where weights are costs in 256ths.
config.bpf.file = "./sched_wfq.bpf.o"

-- Ethernet, IPv6 and UDP.
local HEADERS = 62

local function flow(port, bytes)
  local packet = Udp:new()
  packet.udp.dest = port
  packet.udp.payload = create_payload(bytes - HEADERS)
  return packet
end

local flows = { a = flow(9001, 100), b = flow(9002, 200), c = flow(9003, 100) }

-- Steps are "+a1", which enqueues packet 1 of flow a, and "-a1", which expects it.
local function run(steps)
  for action, name, number in steps:gmatch("([+-])(%a)(%d)") do
    local act = action == "+" and enqueue or dequeue_cmp
    act(flows[name], tonumber(number))
  end
  expect_equal(xdq.currently_queued, 0, "packets left")
end

test("a flow with one packet leaves nothing behind", function()
  run "+a1 -a1"
  expect_equal(dequeue(), nil)
end)

test("the first packet of a flow precedes second packets", function()
  run "+a1 +a2 +c1 -a1 -c1 -a2"
end)

test("starts follow the bytes of each flow", function()
  -- Starts: a 0, 100, 200; b 0, 200; c arrives at virtual time 100: 100, 200.
  run "+a1 +b1 +a2 +b2 -a1 +a3 -b1 -a2 +c1 +c2 -c1 -b2 -a3 -c2"
end)

test("four thousand packets of a flow keep their order", function()
  for number = 1, 4096 do enqueue(flows.a, number) end
  expect_equal(xdq.currently_queued, 4096)
  for number = 1, 4096 do dequeue_cmp(flows.a, number) end
end)

test("weights are costs, and change between packets", function()
  set_flow_weight(flows.a, 1024)
  run "+a1 +a2 +b1 +b2 -a1 -b1 -b2 -a2"  -- a 0, 400; b 0, 200
  set_flow_weight(flows.a, 256)
  set_flow_weight(flows.b, 32)
  run "+a3 +a4 +b3 +b4 -a3 -b3 -b4 -a4"  -- a 0, 100; b 0, 25
end)

test("a flow of four times the cost sends a fourth", function()
  set_time_ns(1000)
  set_flow_weight(flows.c, 1024)
  run "+c1 +c2 +c3 +c4 +a1 +a2 +a3 +a4 -c1 -a1 -a2 -a3 -a4 -c2 -c3 -c4"
end)

test("weight 0 costs nothing", function()
  set_flow_weight(flows.b, 0)
  for number = 1, 50 do enqueue(flows.b, number) end
  enqueue(flows.a, 1)
  enqueue(flows.a, 2)
  -- All start at 0 but the second of a.
  for number = 1, 50 do dequeue_cmp(flows.b, number) end
  run "+b1 -a1 -b1 -a2"
end)

test("weights are integers of 16 bits", function()
  for _, wrong in ipairs { -1, 65536, 0.5, "256" } do
    expect_error(function() set_flow_weight(flows.a, wrong) end, "an integer from 0 to 65535")
  end
  set_flow_weight(flows.a, 65535)
  set_flow_weight(flows.a, 512 / 2)
end)
