-- An impairment: one leaf's packets are 5 ms late, the other's are not.

local slow = udp { flow = 1, class = 1, length = 1000, label = "slow" }
local quick = udp { flow = 2, class = 2, length = 1000, label = "quick" }

test("who is delayed leaves later, and holds nobody up", function()
	enqueue(slow)
	enqueue(quick)
	enqueue(slow)
	expect_order { quick }
	expect_nothing(5 * MS)
	expect_sent_at(slow, 5 * MS)
	expect_order { slow }
	expect_empty()
end)

test("a delay is no time in the queue", function()
	local first = enqueue(slow)
	drain(5 * MS)
	expect(first.left_ns - first.came_ns == 5 * MS)
	expect_sojourn(first, 0)
end)

test("what waits in the queue behind its delay has waited there", function()
	local first, second = enqueue(slow), enqueue(slow)
	advance_ns(5 * MS)
	dequeue_cmp(first)
	advance_ns(2 * MS)
	dequeue_cmp(second)
	expect_sojourn(second, 2 * MS)
end)
