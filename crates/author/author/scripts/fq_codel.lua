-- FQ-CoDel (RFC 8290): new flows before old ones, a quantum per turn, CoDel in each flow.

local function bulk(flow)
	return tcp { flow = flow, length = 1514, label = "bulk " .. flow }
end

local call = udp { flow = 100, source = "10.0.0.9", length = 200, label = "call" }

test("a sparse flow leaves before bulk flows", function()
	local one, two = bulk(1), bulk(2)
	for _ = 1, 5 do
		enqueue(one)
		enqueue(two)
	end
	expect_order { one, two }
	for _ = 1, 3 do
		enqueue(call)
		dequeue_cmp(call)
		dequeue()
		dequeue()
	end
end)

test("bulk flows take turns of a quantum", function()
	local long = tcp { flow = 1, length = 1514, label = "long" }
	local short = tcp { flow = 2, source = "10.0.0.9", destination = "10.0.0.8", length = 757, label = "short" }
	for _ = 1, 10 do
		enqueue(long)
		enqueue(short)
		enqueue(short)
	end
	local bytes = { long = 0, short = 0 }
	for _ = 1, 15 do
		local item = dequeue()
		bytes[item.label] = bytes[item.label] + item.length
	end
	expect_between(bytes.long - bytes.short, -1514, 1514, "bytes ahead")
end)

test("hosts share equally, whatever their number of flows", function()
	local single = tcp { flow = 1, source = "10.0.1.1", destination = "10.0.2.1", length = 1500, label = "single" }
	local many = {}
	for i = 1, 10 do
		many[i] = tcp { flow = i, source = "10.0.1.2", destination = "10.0.2.2", length = 1500, label = "many" }
	end
	for _ = 1, 100 do
		enqueue(single)
		for _, flow in ipairs(many) do
			enqueue(flow)
		end
	end
	for _ = 1, 20 do
		dequeue()
	end
	local singles = 0
	for _ = 1, 160 do
		if dequeue().label == "single" then
			singles = singles + 1
		end
	end
	expect_between(singles, 72, 88, "packets of the host with one flow, of 160")
end)

test("CoDel drops from the standing flow only", function()
	local fat = udp { flow = 1, length = 1514, label = "fat" }
	for _ = 1, 500 do
		enqueue(fat)
	end
	dequeue_cmp(fat) -- its first quantum, after which it is an old flow
	for now = 1, 300 do
		set_time_ns(now * MS)
		expect(enqueue(call).state == "waiting")
		dequeue_cmp(call)
		dequeue()
	end
	local dropped = stats().dropped.policy
	expect(dropped >= 3, "CoDel dropped " .. dropped)
	expect_drops(dropped)
end)
