-- pFabric: it needs ranks of flows, not of packets (Eiffel, NSDI 2019, section 3.2).

local function packet(flow, left)
	return udp { flow = flow, hint = left, label = "p" .. flow .. "(" .. left .. ")" }
end

local p0, p9, p8, p6 = packet(1, 7), packet(2, 9), packet(2, 8), packet(2, 6)

test("the flow with fewest remaining bytes leaves first", function()
	enqueue(p0)
	enqueue(p9)
	enqueue(p8)
	expect_order { p0, p9, p8 }
	expect_empty()
end)

test("older packets leave with their short flow", function()
	enqueue(p0)
	enqueue(p9)
	enqueue(p8)
	enqueue(p6)
	expect_order { p9, p8, p6, p0 }
	expect_empty()
end)
