-- FQ-CoDel in the dialect of the XDP queueing tester. Where its program has another order, the order here is
-- that of fq_codel: docs/guide/sched-scripts.md compares both with RFC 8290, line by line.
config.bpf.file = "./sched_fq_codel.bpf.o"
adjust_meta(8)

-- Ethernet, IPv6 and UDP.
local HEADERS = 62
local QUANTUM = 1514

local sparse, bulk = Udp:new(), Udp:new()
sparse.udp.dest = 9001
bulk.udp.dest = 9002

local function set_bytes(packet, bytes)
  packet.udp.payload = create_payload(bytes - HEADERS)
end

-- Steps are "+s1", which enqueues packet 1 of the sparse flow, and "-b1", which expects one of the other.
local function run(steps)
  for action, name, number in steps:gmatch("([+-])(%a)(%d)") do
    local act = action == "+" and enqueue or dequeue_cmp
    act(name == "s" and sparse or bulk, tonumber(number))
  end
end

-- The second of two packets exceeds the quantum of a new flow.
local function use_up_credit()
  set_bytes(bulk, QUANTUM - 8)
  run "+b1 +b2 -b1 -b2"
end

set_time_ns(1000)

test("a flow that empties within its quantum is new again", function()
  use_up_credit()
  set_bytes(sparse, QUANTUM / 2)
  run "+b3 +b4 +s1 +s2 -s1 -s2 -b3 +s3 -s3 -b4"
  expect_equal(xdq.currently_queued, 0)
end)

test("a flow of small packets passes the other once a turn", function()
  use_up_credit()
  set_bytes(bulk, QUANTUM / 2 - 4)
  set_bytes(sparse, 92)
  run "+b3 +b4 +b5 -b3 +s1 +s2 -s1 -s2 -b4"
  -- The program and RFC 8290 send s3 and s4 first.
  run "+s3 +s4 -b5 -s3 -s4"
  expect_equal(xdq.currently_queued, 0)
end)

test("a flow that used its quantum waits for the other", function()
  use_up_credit()
  set_bytes(bulk, QUANTUM / 2)
  set_bytes(sparse, QUANTUM / 2)
  run "+b3 +b4 +b5 -b3 +s1 +s2 +s3 +s4 -s1 -s2"
  -- The program continues s3, b4, s4, b5, and RFC 8290 s3, s4, b4, b5.
  run "-b4 -b5 -s3 -s4"
  expect_equal(xdq.currently_queued, 0)
end)
