-- Shortest remaining processing time: the fewest remaining bytes leave first.

local long = udp { flow = 1, hint = 1000000, label = "long" }
local short = udp { flow = 2, hint = 1500, label = "short" }

test("the fewest remaining bytes leave first", function()
	enqueue(long)
	enqueue(short)
	enqueue(long)
	expect_order { short, long, long }
	expect_empty()
end)

test("patience limits starvation", function()
	param("srpt", "patience", "1ms")
	enqueue(long, "old")
	advance_ns(2 * MS)
	enqueue(short)
	dequeue_cmp(long, "old")
	dequeue_cmp(short)
end)
