-- An impairment that delays the packets of one leaf by 5 ms.

local slow = udp { flow = 1, class = 1, length = 1000, label = "slow" }
local quick = udp { flow = 2, class = 2, length = 1000, label = "quick" }

test("a delayed packet does not block others", function()
	enqueue(slow)
	enqueue(quick)
	enqueue(slow)
	expect_order { quick }
	expect_nothing(5 * MS)
	expect_sent_at(slow, 5 * MS)
	expect_order { slow }
	expect_empty()
end)

test("sojourn time excludes the delay", function()
	local first = enqueue(slow)
	drain(5 * MS)
	expect(first.left_ns - first.enqueued_ns == 5 * MS)
	expect_sojourn(first, 0)
end)

test("sojourn time includes waiting after the delay", function()
	local first, second = enqueue(slow), enqueue(slow)
	advance_ns(5 * MS)
	dequeue_cmp(first)
	advance_ns(2 * MS)
	dequeue_cmp(second)
	expect_sojourn(second, 2 * MS)
end)
