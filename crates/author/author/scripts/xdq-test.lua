-- Metadata and time in the dialect of the XDP queueing tester: the program is a FIFO.
config.bpf.file = "./sched_test.bpf.o"
adjust_meta(8)

local short, long = Udp:new(), Udp:new()
short.udp.dest = 9001
short.udp.payload = create_payload(4)
long.udp.dest = 9002
long.udp.payload = create_payload(10)

test("metadata in front of packets does not change them", function()
  enqueue(short, 1)
  dequeue_cmp(short, 1)
  set_time_ns(100)
  enqueue(long, 7)
  local packet = dequeue()
  cmp(packet, long, 7)
  expect_equal(#packet.udp.payload, 10)
  expect_equal(get_time_ns(), 100)
end)

test("a received packet has lengths and no functions", function()
  enqueue(long, 7)
  local packet = dequeue()
  expect_equal(packet.udp.len, 18)
  expect_equal(packet.ip.payload_len, 18)
  expect_equal(packet.udp.next_sequence, nil)
  local text = dump(packet)
  expect(text:find('"dest": 9002', 1, true), text)
  expect(text:find('"payload": "07 00 00 00 00 00 00 00 41 41 "', 1, true), text)
end)
