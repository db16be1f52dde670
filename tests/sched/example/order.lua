local short = udp { flow = 1, length = 100, label = "short" }
local long = udp { flow = 2, length = 1500, label = "long" }

test("short packets leave first", function()
	enqueue(long, "a")
	enqueue(long, "b")
	advance_ns(2 * MS)
	enqueue(short)
	expect_order { short, long, long }
end)
