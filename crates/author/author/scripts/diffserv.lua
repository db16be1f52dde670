-- DiffServ tins for voice, video, other traffic and bulk, with the code points of RFC 4594 and RFC 8622.

local function one(dscp)
	return udp { flow = 9, dscp = dscp, length = 200, label = dscp }
end

-- Enqueues one flow per code point, the last tin first, and returns the order of departure.
local function order(code_points)
	for number = #code_points, 1, -1 do
		enqueue(udp { flow = number, dscp = code_points[number], length = 200, label = code_points[number] })
	end
	local left = {}
	for number, item in ipairs(drain()) do
		left[number] = item.label
	end
	return table.concat(left, " ")
end

test("four tins", function()
	expect_equal(order { "EF", "AF41", "DF", "LE" }, "EF AF41 DF LE")
	expect_equal(order { "CS5", "CS3", "AF11", "CS1" }, "CS5 CS3 AF11 CS1")
	expect_equal(order { "VA", "AF23", "DF", "CS1" }, "VA AF23 DF CS1")
end)

test("eight tins", function()
	param(1, "tins", 8)
	local all = { "CS6", "EF", "CS2", "AF21", "AF41", "DF", "AF11", "LE" }
	expect_equal(order(all), table.concat(all, " "))
end)

test("three tins have no tin for video", function()
	param(1, "tins", 3)
	expect_equal(order { "EF", "DF", "AF41", "LE" }, "EF AF41 DF LE")
end)

test("one tin sends flows in arrival order", function()
	param(1, "tins", 1)
	expect_equal(order { "EF", "DF", "LE" }, "LE DF EF")
end)

test("flows of one tin take turns", function()
	local a = udp { flow = 1, dscp = "EF", label = "a" }
	local b = udp { flow = 2, dscp = "EF", label = "b" }
	for number = 1, 3 do
		enqueue(a, number)
	end
	for number = 1, 3 do
		enqueue(b, number)
	end
	advance_ns(1)
	expect_order { a, b, a, b, a, b }
end)

test("bulk waits at most its guard of 300 ms", function()
	local bulk = enqueue(one("LE"))
	local voice = udp { flow = 2, dscp = "EF", label = "voice" }
	for number = 1, 1000 do
		set_time_ns(number * MS)
		enqueue(voice)
		dequeue()
		if bulk.state == "sent" then
			break
		end
	end
	expect_sojourn(bulk, 300 * MS, 302 * MS)
end)
