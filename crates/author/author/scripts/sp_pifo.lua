-- SP-PIFO: eight FIFO queues under strict priority with adaptive bounds.

local function packet(rank)
	return udp { hint = rank, flow = rank + 1, label = "rank " .. rank }
end

test("few ranks leave in order", function()
	local one, three, five = packet(1), packet(3), packet(5)
	enqueue(three)  -- enters the last queue, with the bound 3
	enqueue(one)    -- enters the queue before it
	enqueue(five)   -- enters the last queue
	expect_order { one, three, five }
	expect_empty()
end)

-- Ten packets with ranks 9 to 0 need more than eight queues: the last two enter the first queue.
test("more ranks than queues are inverted", function()
	local packets = {}
	for rank = 9, 0, -1 do
		packets[rank] = packet(rank)
		enqueue(packets[rank])
	end
	expect_order { packets[2], packets[1], packets[0], packets[3], packets[4] }
	expect_waiting(5)
end)
