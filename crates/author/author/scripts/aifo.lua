-- AIFO: one FIFO of ten packets that lets in what a sorted one would send.

local function packet(rank)
	return udp { hint = rank, flow = rank + 1, label = "rank " .. rank }
end

test("the fuller the queue, the smaller a rank must be", function()
	local low, high = packet(1), packet(100)
	for _ = 1, 5 do
		expect(enqueue(low).state == "waiting")
	end
	expect_dropped(enqueue(high), "not_admitted")
	expect(enqueue(low).state == "waiting")
	drain()
	expect(enqueue(high).state == "waiting", "an empty queue takes anybody")
end)

test("order is that of arrival", function()
	local two, one = packet(2), packet(1)
	enqueue(two)
	enqueue(one)
	expect_order { two, one }
end)
