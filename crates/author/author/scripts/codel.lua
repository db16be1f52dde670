-- CoDel (RFC 8289): the first drop is at 105 ms, and the next ones are 100 / sqrt(n) ms apart.

local DROPS = { 105, 205, 276, 334 } -- 105; + 100; + 100 / sqrt(2) = 275.7; + 100 / sqrt(3) = 333.4

local function run(packet, milliseconds, happened)
	for _ = 1, 1000 do
		enqueue(packet)
	end
	local times, before = {}, 0
	for now = 1, milliseconds do
		set_time_ns(now * MS)
		dequeue()
		if happened() > before then
			before = happened()
			times[#times + 1] = now
		end
	end
	return times
end

local function expect_times(times)
	expect_equal(#times, #DROPS, "number of drops")
	for i, wanted in ipairs(DROPS) do
		expect_equal(times[i], wanted, "ms of number " .. i)
	end
end

test("a standing queue loses packets by the control law", function()
	local packet = udp { length = 1514 }
	expect_times(run(packet, 340, function()
		return stats().dropped.policy
	end))
	expect_drops(#DROPS, "policy")
end)

test("packets with ECN are marked instead", function()
	local packet = udp { length = 1514, ecn = "ect0" }
	expect_times(run(packet, 340, function()
		return stats().marked
	end))
	expect_drops(0)
end)

test("packets within the target are not dropped", function()
	local packet = udp { length = 1514 }
	for now = 0, 1000 do
		set_time_ns(now * MS)
		enqueue(packet)
		if now >= 4 then
			dequeue_cmp(packet)
		end
	end
	expect_drops(0)
end)
