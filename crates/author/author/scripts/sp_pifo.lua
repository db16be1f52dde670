-- SP-PIFO: eight FIFO queues under strict priority; the bounds adapt.

local function packet(rank)
	return udp { hint = rank, flow = rank + 1, label = "rank " .. rank }
end

test("few ranks leave in order", function()
	local one, three, five = packet(1), packet(3), packet(5)
	enqueue(three)  -- to the last queue: its bound is 3
	enqueue(one)    -- to the one before
	enqueue(five)   -- to the last
	expect_order { one, three, five }
	expect_empty()
end)

-- Ten packets of ranks 9 to 0 take more queues than there are: the last two go to the first.
test("more ranks than queues are inverted", function()
	local packets = {}
	for rank = 9, 0, -1 do
		packets[rank] = packet(rank)
		enqueue(packets[rank])
	end
	expect_order { packets[2], packets[1], packets[0], packets[3], packets[4] }
	expect_waiting(5)
end)
