-- Least slack time first: the slack of all waiting packets shrinks equally.

test("packets leave by arrival time plus slack", function()
	local patient = udp { hint = 10 * MS, label = "patient" }
	local urgent = udp { hint = 4 * MS, label = "urgent" }
	enqueue(patient)
	set_time_ns(5 * MS)
	enqueue(urgent)          -- until 9 ms
	set_time_ns(7 * MS)
	enqueue(urgent, "late")  -- until 11 ms
	expect_rank(queue()[1], 9 * MS)
	dequeue_cmp(urgent, 1)
	dequeue_cmp(patient)
	dequeue_cmp(urgent, "late")
	expect_empty()
end)
