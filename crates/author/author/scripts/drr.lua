-- Deficit round robin: the example of the paper (figures 2 and 3), quantum 500.

local function packets(flow, lengths)
	local all = {}
	for i, length in ipairs(lengths) do
		all[i] = udp { flow = flow, length = length, label = flow .. ":" .. length }
	end
	return all
end

test("a flow keeps its unused quantum", function()
	param("drr", "quantum", 500)
	local one, two = packets(1, { 200, 750, 20 }), packets(2, { 500, 500 })
	local three, four = packets(3, { 100, 600, 200 }), packets(4, { 180, 700, 50 })
	for _, flow in ipairs { one, two, three, four } do
		for _, packet in ipairs(flow) do
			enqueue(packet)
		end
	end
	expect_order { one[1], two[1], three[1], four[1] }
	expect_order { one[2], one[3], two[2], three[2], three[3], four[2], four[3] }
	expect_empty()
end)
