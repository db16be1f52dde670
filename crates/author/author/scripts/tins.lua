-- Tins: light children have priority for their share of the rate, and the heaviest has the rest.

local TINS = { EF = 4, CS1 = 1, DF = 16 }

local function fill(dscp, count)
	for _ = 1, count do
		enqueue(udp { flow = TINS[dscp], dscp = dscp, length = 1000, label = dscp })
	end
end

-- The packets of each tin among the next ones.
local function sent_of(count)
	local sent = { EF = 0, CS1 = 0, DF = 0 }
	for _ = 1, count do
		local item = dequeue()
		sent[item.label] = sent[item.label] + 1
	end
	return sent
end

test("light tins go first up to their thresholds", function()
	for dscp in pairs(TINS) do
		fill(dscp, 1600)
	end
	local sent = sent_of(1600)
	expect_between(sent.EF, 399, 401, "voice")
	expect_between(sent.CS1, 99, 101, "bulk")
	expect_between(sent.DF, 1099, 1101, "the rest")
end)

test("a packet within the threshold is the next", function()
	fill("DF", 100)
	fill("CS1", 100)
	for _ = 1, 10 do
		sent_of(10)
		fill("EF", 1)
		expect_equal(dequeue().label, "EF")
	end
end)

test("nothing is unused above thresholds", function()
	fill("EF", 500)
	expect_equal(sent_of(500).EF, 500)
	fill("EF", 800)
	fill("CS1", 800)
	local sent = sent_of(500)
	expect_between(sent.EF, 396, 404, "voice")
	expect_between(sent.CS1, 96, 104, "bulk")
end)
