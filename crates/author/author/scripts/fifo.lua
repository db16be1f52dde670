-- First in, first out. A full scheduler drops new packets.

local short = udp { flow = 1, length = 64, label = "short" }
local long = tcp { flow = 2, length = 1514, dscp = "EF", label = "long" }

test("packets leave in arrival order", function()
	enqueue(long)
	enqueue(short)
	enqueue(long)
	advance_ns(5 * MS)
	enqueue(short)
	expect_order { long, short, long, short }
	expect_empty()
end)

test("a full scheduler drops new packets", function()
	local last
	repeat
		last = enqueue(short)
	until last.state == "dropped"
	expect_dropped(last, "limit")
	local waiting = #queue()
	dequeue()
	expect(enqueue(long).state == "waiting", "there is room again")
	expect_waiting(waiting)
	expect_drops(1)
end)
