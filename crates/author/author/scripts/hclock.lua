-- Reservation, limit and share: floored has 4 Mbit/s at least, capped 8 Mbit/s at most, heavy
-- nothing but its weight.

local floored = udp { class = 1, flow = 1, length = 1000, label = "floored" }
local capped = udp { class = 2, flow = 2, length = 1000, label = "capped" }
local heavy = udp { class = 3, flow = 3, length = 1000, label = "heavy" }

test("a ceiling holds when nobody else wants anything", function()
	for _ = 1, 11 do
		enqueue(capped)
	end
	expect_sent_after(capped, 0)
	local begun = time_ns()
	for number = 1, 9 do
		expect_sent_after(capped, begun + (number - 1) * MS)
	end
	expect_between(time_ns() - begun, 8 * MS, 9 * MS, "ns for nine packets more")
end)

test("what one may not use, the other gets", function()
	for _ = 1, 100 do
		enqueue(heavy)
	end
	local item, again = dequeue()
	while item do
		item, again = dequeue()
	end
	expect(again == nil, "the link was left idle")
	expect_empty()
end)

-- A link of 10 Mbit/s: a packet each 800 microseconds.
test("a floor is kept against any weight", function()
	local sent = { 0, 0, 0 }
	for _ = 1, 2000 do
		enqueue(floored)
		enqueue(heavy)
	end
	for number = 1, 1250 do
		set_time_ns(number * 800 * US)
		local item = dequeue()
		sent[item.class] = sent[item.class] + 1
	end
	expect_between(sent[1], 490, 530, "packets of 1,000 bytes in a second at a floor of 4 Mbit/s")
end)
