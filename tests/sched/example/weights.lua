local light = udp { flow = 1, length = 1000, label = "light" }
local heavy = udp { flow = 2, length = 1000, label = "heavy" }

test("a flow of weight 2 sends twice as much", function()
	set_flow_weight(heavy, 2)
	for _ = 1, 4 do
		enqueue(light)
		enqueue(heavy)
	end
	expect_order { light, heavy, heavy, light, heavy, heavy }
	expect_waiting(2)
end)

test("a single packet leaves with its sojourn time", function()
	local first = enqueue(light)
	advance_ns(5 * MS)
	dequeue_cmp(first)
	expect_sojourn(first, 5 * MS)
	expect_empty()
end)
