-- Tests of @NAME@. Run: fairpath sched test @NAME@.c @NAME@.lua

-- Of two packets that arrive together, the shorter leaves first.
local long = udp{flow = 1, length = 1500, label = "long"}
local short = udp{flow = 2, length = 100, label = "short"}
set_time_ns(1000000)
enqueue(long)
enqueue(short)
expect_order{short, long}
expect_empty()

-- A long packet waits for later short ones by the cost of its extra bytes: 1,400 bytes are 1.4 ms.
local first = udp{flow = 1, length = 1500, label = "first"}
local soon = udp{flow = 2, length = 100, label = "soon"}
local late = udp{flow = 2, length = 100, label = "late"}
enqueue(first)
advance_ns(1 * MS)
enqueue(soon)
advance_ns(1 * MS)
enqueue(late)
expect_order{soon, first, late}
expect_empty()
