-- Start-time fair queueing: shares of bytes follow weights, independent of packet lengths.

local a = udp { flow = 1, length = 100, label = "a" }
local b = udp { flow = 2, length = 200, label = "b" }
local c = udp { flow = 3, length = 100, label = "c" }

test("packets leave by start time, then arrival", function()
	enqueue(a, 1)                    -- a: 0 to 100
	enqueue(b, 1)                    -- b: 0 to 200
	enqueue(a, 2)                    -- a: 100 to 200
	enqueue(b, 2)                    -- b: 200 to 400
	dequeue_cmp(a, 1)
	enqueue(a, 3)                    -- a: 200 to 300
	dequeue_cmp(b, 1)
	dequeue_cmp(a, 2)                -- virtual time is 100
	enqueue(c, 1)                    -- c: 100 to 200
	enqueue(c, 2)                    -- c: 200 to 300
	dequeue_cmp(c, 1)
	dequeue_cmp(b, 2)
	dequeue_cmp(a, 3)
	dequeue_cmp(c, 2)
	expect_empty()
end)

-- Shares of backlogged flows, exact to one packet.
local function shares(weights, packets)
	local flows, sent = {}, {}
	for i, weight in ipairs(weights) do
		flows[i] = udp { flow = 10 + i, length = 100, label = "weight " .. weight }
		set_flow_weight(flows[i], weight)
		for _ = 1, packets do
			enqueue(flows[i])
		end
		sent[i] = 0
	end
	for _ = 1, packets do
		local item = dequeue()
		for i, flow in ipairs(flows) do
			if item.flow_hash == flow.flow_hash then
				sent[i] = sent[i] + 1
			end
		end
	end
	return sent
end

test("shares follow weights", function()
	local sent = shares({ 1, 2, 5 }, 800)
	expect_between(sent[1], 99, 101, "packets of weight 1")
	expect_between(sent[2], 199, 201, "packets of weight 2")
	expect_between(sent[3], 499, 501, "packets of weight 5")
end)

-- A flow with one waiting packet does not restart at the current virtual time when it empties.
test("one packet at a time gains no share", function()
	local one = udp { flow = 4, length = 1000, label = "one" }
	local many = udp { flow = 5, length = 1000, label = "many" }
	for _ = 1, 50 do
		enqueue(many)
	end
	enqueue(one)
	local ones = 0
	for _ = 1, 40 do
		if dequeue().label == "one" then
			ones = ones + 1
			enqueue(one)
		end
	end
	expect_between(ones, 19, 21, "packets of the flow with one at a time")
end)
