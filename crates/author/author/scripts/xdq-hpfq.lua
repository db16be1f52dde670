-- Hierarchical fair queueing in the dialect of the XDP queueing tester: ports up to 4000 are the left leaf.
config.bpf.file = "./sched_hpfq.bpf.o"

local function flow(port)
  local packet = Udp:new()
  packet.udp.dest = port
  packet.udp.payload = create_payload(100)
  return packet
end

local left, right, other = flow(4000), flow(4001), flow(9000)

test("a flow keeps its order in one busy period and the next", function()
  for first = 1, 2 do
    enqueue(left, first)
    enqueue(left, first + 1)
    dequeue_cmp(left, first)
    dequeue_cmp(left, first + 1)
  end
  expect_equal(xdq.currently_queued, 0)
end)

test("first packets of three flows leave as they arrived", function()
  local flows = { left, right, other }
  for _, packet in ipairs(flows) do enqueue(packet, 1) end
  for _, packet in ipairs(flows) do dequeue_cmp(packet, 1) end
end)

-- Packets by port, of the first 40 of 40 packets a flow.
local function shares(flows)
  local sent = {}
  for number = 1, 40 do
    for _, packet in ipairs(flows) do enqueue(packet, number) end
  end
  for _ = 1, 40 do
    local port = dequeue().udp.dest
    sent[port] = (sent[port] or 0) + 1
  end
  return sent
end

test("left and right have half each, and flows of a leaf share it", function()
  local sent = shares { left, right, other }
  expect_between(sent[4000], 19, 21, "packets of the left leaf")
  expect_between(sent[4001], 9, 11, "packets of a flow of the right leaf")
  expect_between(sent[9000], 9, 11, "packets of the other flow")
end)

test("a weight is one of the leaf", function()
  set_flow_weight(other, 768)
  local sent = shares { left, right, other }
  expect_between(sent[4000], 19, 21, "packets of the left leaf")
  expect_between(sent[4001], 14, 16, "packets of weight 256")
  expect_between(sent[9000], 4, 6, "packets of weight 768")
end)
