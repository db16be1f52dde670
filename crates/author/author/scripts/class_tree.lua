-- Floors, ceilings and borrowing: floored has a floor of 4 Mbit/s, capped a ceiling of 8 Mbit/s, and
-- heavy a weight only. hclock gives the same guarantees: hclock.lua is a link to this file.

local floored = udp { class = 1, flow = 1, length = 1000, label = "floored" }
local capped = udp { class = 2, flow = 2, length = 1000, label = "capped" }
local heavy = udp { class = 3, flow = 3, length = 1000, label = "heavy" }

test("a ceiling limits a class on an idle link", function()
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

test("another class uses the rate above a ceiling", function()
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

-- A link of 10 Mbit/s sends a packet every 800 microseconds.
test("a floor holds with any weight", function()
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

-- Packets of two backlogged classes that leave in a second, one every 800 microseconds.
local function second(one, other)
	local sent, begun = 0, time_ns()
	for number = 1, 1250 do
		set_time_ns(begun + number * 800 * US)
		local item = dequeue()
		if item and item.class == one.class then
			sent = sent + 1
		end
		if item then
			enqueue(item.packet)
		end
	end
	return sent
end

test("weights, floors and ceilings change while packets wait", function()
	for _ = 1, 50 do
		enqueue(floored)
		enqueue(heavy)
	end
	set_node("floored", { floor = "none" })
	expect_between(second(floored, heavy), 8, 25, "packets by weight, 1 of 101")
	set_node("floored", { weight = 100 })
	expect_between(second(floored, heavy), 570, 635, "packets by weight, 1 of 2, after the credit is used")
	set_node("floored", { ceil = "2mbit", burst = "10ms" })
	expect_between(second(floored, heavy), 245, 260, "packets at a ceiling of 2 Mbit/s")
	set_node("floored", { weight = 1, floor = "6mbit", ceil = 0 })
	expect_between(second(floored, heavy), 745, 770, "packets at a floor of 6 Mbit/s")
	expect_error(function()
		set_node("floored", { ceil = "5mbit" })
	end, "the floor would exceed the ceiling")
	expect_error(function()
		set_node("floored", { ceiling = "5mbit" })
	end, "did you mean ceil?")
	expect_error(function()
		set_node("floored", { floor = "5" })
	end, "floor")
end)
