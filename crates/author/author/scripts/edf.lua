-- Earliest deadline first: the deadline of the packet, or else the default of its DSCP.

test("the earliest deadline leaves first", function()
	local late = udp { hint = 9 * MS, label = "late" }
	local soon = udp { hint = 2 * MS, label = "soon" }
	local now = udp { hint = 1, label = "now" }
	enqueue(late)
	enqueue(soon)
	advance_ns(1 * MS)
	enqueue(now)
	expect_order { now, soon, late }
	expect_empty()
end)

test("the DSCP sets the default deadline", function()
	local best_effort = udp { label = "best effort" }
	local voice = udp { dscp = "EF", label = "voice" }
	enqueue(best_effort)
	set_time_ns(94 * MS)
	enqueue(voice)           -- deadline 99 ms, best effort 100 ms
	enqueue(best_effort, "later")
	dequeue_cmp(voice)
	enqueue(voice, "again")
	set_time_ns(96 * MS)
	enqueue(voice, "too late")
	dequeue_cmp(voice, "again")
	dequeue_cmp(best_effort, 1)
	dequeue_cmp(voice, "too late")
	dequeue_cmp(best_effort, "later")
	expect_empty()
end)
