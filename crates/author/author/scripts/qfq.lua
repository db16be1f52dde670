-- QFQ: shares follow weights, and a heavy child does not send its share in one burst.

local WEIGHTS = { 1, 2, 5 }

test("shares follow weights without bursts", function()
	for _ = 1, 800 do
		for class in ipairs(WEIGHTS) do
			enqueue(udp { class = class, flow = class, length = 1500 })
		end
	end
	local sent = { 0, 0, 0 }
	for number = 1, 800 do
		local item = dequeue()
		sent[item.class] = sent[item.class] + 1
		for class, weight in ipairs(WEIGHTS) do
			expect_between(sent[class], number * weight / 8 - 5, number * weight / 8 + 5, "class " .. class)
		end
	end
	for class, weight in ipairs(WEIGHTS) do
		expect_between(sent[class], 100 * weight - 3, 100 * weight + 3, "packets of class " .. class)
	end
end)
