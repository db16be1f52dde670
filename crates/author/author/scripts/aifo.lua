-- AIFO: a FIFO of ten packets that admits the packets that a sorted queue would send.

local function packet(rank)
	return udp { hint = rank, flow = rank + 1, label = "rank " .. rank }
end

test("a fuller queue admits smaller ranks only", function()
	local low, high = packet(1), packet(100)
	for _ = 1, 5 do
		expect(enqueue(low).state == "waiting")
	end
	expect_dropped(enqueue(high), "not_admitted")
	expect(enqueue(low).state == "waiting")
	drain()
	expect(enqueue(high).state == "waiting", "an empty queue takes anybody")
end)

test("packets leave in arrival order", function()
	local two, one = packet(2), packet(1)
	enqueue(two)
	enqueue(one)
	expect_order { two, one }
end)
