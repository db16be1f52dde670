-- Strict priority by IP precedence: a lower band sends only if all higher bands are empty.

local routine = udp { flow = 1, length = 100, label = "routine" }
local video = udp { flow = 2, length = 100, dscp = "AF41", label = "video" }
local voice = udp { flow = 3, length = 100, dscp = "EF", label = "voice" }
local control = udp { flow = 4, length = 100, dscp = "CS6", label = "control" }

test("the highest precedence leaves first", function()
	for number = 1, 2 do
		enqueue(routine, number)
		enqueue(video, number)
		enqueue(control, number)
		enqueue(voice, number)
	end
	expect_order { control, control, voice, voice, video, video }
	dequeue_cmp(routine, 1)
	dequeue_cmp(routine, 2)
	expect_empty()
end)

test("a higher band starves a lower band", function()
	enqueue(routine)
	for number = 1, 1000 do
		set_time_ns(number * MS)
		enqueue(voice, number)
		dequeue_cmp(voice, number)
	end
	expect_waiting(1)
end)

test("a guard limits the wait", function()
	param(1, "guard", "10ms")        -- seven bands: no packet is reordered after 5 * 10 ms
	local last = enqueue(routine)
	local now = 0
	while last.state == "waiting" do
		now = now + MS
		set_time_ns(now)
		enqueue(voice)
		dequeue()
	end
	expect_sojourn(last, 50 * MS, 52 * MS)
end)

test("the smallest mark leaves first", function()
	param(1, "by", 1)
	local one = udp { mark = 1, label = "mark 1" }
	local two = udp { mark = 2, dscp = "EF", label = "mark 2" }
	local far = udp { mark = 4000000000, dscp = "CS7", label = "beyond 63" }
	enqueue(far)
	enqueue(two)
	enqueue(one)
	expect_order { one, two, far }
end)
