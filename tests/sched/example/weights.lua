local light = udp { flow = 1, length = 1000, label = "light" }
local heavy = udp { flow = 2, length = 1000, label = "heavy" }

test("twice the weight, twice the packets", function()
	set_flow_weight(heavy, 2)
	for _ = 1, 4 do
		enqueue(light)
		enqueue(heavy)
	end
	expect_order { light, heavy, heavy, light, heavy, heavy }
	expect_waiting(2)
end)

test("the packet that waited longest is not forgotten", function()
	local first = enqueue(light)
	advance_ns(5 * MS)
	dequeue_cmp(first)
	expect_sojourn(first, 5 * MS)
	expect_empty()
end)
