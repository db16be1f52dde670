-- CoDel by RFC 8289's control law: 105 ms, then 100 / sqrt(n) ms later each.

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
	expect_equal(#times, #DROPS, "how often")
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

test("packets that understand ECN are marked instead", function()
	local packet = udp { length = 1514, ecn = "ect0" }
	expect_times(run(packet, 340, function()
		return stats().marked
	end))
	expect_drops(0)
end)

test("packets that wait no longer than the target are left alone", function()
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
