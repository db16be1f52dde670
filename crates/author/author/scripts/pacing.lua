-- Pacing: packets of a flow leave at even intervals. At 8 Mbit/s, 1,000 bytes take 1 ms.

local a = udp { flow = 1, length = 1000, label = "a" }
local b = udp { flow = 2, length = 1000, label = "b" }

test("a burst of a flow leaves evenly", function()
	param(1, "rate", "8mbit")
	for _ = 1, 5 do
		enqueue(a)
	end
	for number = 0, 4 do
		expect_sent_at(a, number * MS)
	end
	expect_empty()
end)

test("flows do not wait for each other", function()
	param(1, "rate", "8mbit")
	for _ = 1, 3 do
		enqueue(a)
		enqueue(b)
	end
	for number = 0, 2 do
		expect_sent_at(a, number * MS)
		expect_sent_at(b, number * MS)
	end
end)

test("a flow of weight 2 is paced at twice the rate", function()
	param(1, "rate", "8mbit")
	set_flow_weight(b, 2)
	for _ = 1, 3 do
		enqueue(b)
	end
	for number = 0, 2 do
		expect_sent_at(b, number * MS // 2)
	end
end)

test("idle time earns no burst", function()
	param(1, "rate", "8mbit")
	enqueue(a)
	drain()
	set_time_ns(1 * S)
	enqueue(a)
	enqueue(a)
	expect_sent_at(a, 1 * S)
	expect_sent_at(a, 1 * S + MS)
end)

test("a hint sets the send time", function()
	param(1, "by_hint", 1)
	set_time_ns(5 * MS)
	local late = udp { flow = 1, hint = 9 * MS, label = "late" }
	local soon = udp { flow = 1, hint = 7 * MS, label = "soon" }
	local past = udp { flow = 2, hint = 1 * MS, label = "past" }
	enqueue(late)
	enqueue(soon)
	enqueue(past)
	expect_sent_at(past, 5 * MS)
	expect_sent_at(soon, 7 * MS)
	expect_sent_at(late, 9 * MS)
	expect_empty()
end)
