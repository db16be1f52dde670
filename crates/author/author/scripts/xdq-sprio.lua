-- Strict priority in the dialect of the XDP queueing tester: the weight of its flow is the rank of a packet.
config.bpf.file = "./sched_sprio.bpf.o"

local function flow(port)
  local packet = Udp:new()
  packet.udp.dest = port
  return packet
end

-- Enqueues a packet of each flow, and expects them in the order of `ports`.
local function expect_ports(flows, ports)
  for _, packet in ipairs(flows) do enqueue(packet, 1) end
  for _, port in ipairs(ports) do dequeue_cmp(flow(port), 1) end
  expect_equal(xdq.currently_queued, 0)
end

test("the smallest weight leaves first, and 0 is a weight", function()
  local flows = {}
  for weight = 2, 0, -1 do
    local packet = flow(9000 + weight)
    set_flow_weight(packet, weight)
    flows[#flows + 1] = packet
  end
  expect_ports(flows, { 9000, 9001, 9002 })
end)

test("a flow without weight has weight 256", function()
  local last, plain, first = flow(1), flow(2), flow(3)
  set_flow_weight(last, 257)
  set_flow_weight(first, 255)
  expect_ports({ last, plain, first }, { 3, 2, 1 })
end)

test("flows of one weight leave as they arrived", function()
  local farthest, one, two = flow(1), flow(2), flow(3)
  set_flow_weight(farthest, 65535)
  set_flow_weight(one, 4000)
  set_flow_weight(two, 4000)
  expect_ports({ farthest, two, one }, { 3, 2, 1 })
end)

test("waiting packets keep their rank", function()
  local one, two = flow(1), flow(2)
  set_flow_weight(one, 7)
  set_flow_weight(two, 5)
  enqueue(one, 1)
  set_flow_weight(one, 1)
  enqueue(two, 1)
  enqueue(one, 2)
  dequeue_cmp(one, 2)
  dequeue_cmp(two, 1)
  dequeue_cmp(one, 1)
end)

test("a test begins without weights", function()
  expect_ports({ flow(2), flow(1) }, { 2, 1 })
end)
