-- A token bucket of 8 Mbit/s with a burst of 4,000 bytes. A packet of 1,000 bytes takes 1 ms.

local packet = udp { length = 1000, label = "packet" }

local function bucket()
	param(1, "rate", "8mbit")
	param(1, "burst", "4000B")
end

-- send_time (SIGCOMM 2016, section 3.1): now if there are enough tokens, else when there are.
test("a burst, then the rate, to the nanosecond", function()
	bucket()
	for _ = 1, 10 do
		enqueue(packet)
	end
	for _ = 1, 4 do
		expect_sent_at(packet, 0)
	end
	for number = 1, 6 do
		expect_sent_at(packet, number * MS)
	end
	expect_empty()
end)

test("idle time fills the bucket at most once", function()
	bucket()
	for _ = 1, 4 do
		enqueue(packet)
	end
	drain()
	set_time_ns(10 * S)
	for _ = 1, 6 do
		enqueue(packet)
	end
	expect_equal(#drain(), 4, "packets at once")
	expect_sent_at(packet, 10 * S + MS)
	expect_sent_at(packet, 10 * S + 2 * MS)
end)

test("half a second earns half the tokens", function()
	param(1, "rate", "8kbit")        -- one byte per millisecond
	param(1, "burst", "1000B")
	enqueue(packet)
	expect_sent_at(packet, 0)
	set_time_ns(500 * MS)
	enqueue(packet)
	expect_nothing(1 * S)
	expect_sent_at(packet, 1 * S)
end)

test("the rate holds within 0.1 % over 1 s", function()
	bucket()
	for _ = 1, 2000 do
		enqueue(packet)
	end
	expect_between(#drain(1 * S), 1003, 1005, "packets in a second")
end)

-- Tokens taken in advance are repaid at the rate at which they were taken.
test("the rate changes under load", function()
	bucket()
	for _ = 1, 4 do
		enqueue(packet)
	end
	drain()
	set_time_ns(4 * MS)              -- the bucket is full again
	param(1, "rate", "80mbit")
	for _ = 1, 10 do
		enqueue(packet)
	end
	for _ = 1, 4 do
		expect_sent_at(packet, 4 * MS)
	end
	for number = 1, 6 do
		expect_sent_at(packet, 4 * MS + number * 100 * US)
	end
end)
