# The scheduler's kernel runtime agrees with the native one on this kernel, packet by packet.
#
# kernels: floor newest
# needs: fairpath fairpath-sched
# timeout: 240

cat >/tmp/shares.lua <<'LUA'
test("bytes by weight, whatever the packets' sizes", function()
  set_flow_weight(udp { flow = 2, length = 500 }, 3)
  local small, large = 0, 0
  for _ = 1, 200 do
    enqueue(udp { flow = 1, length = 1500 })
    enqueue(udp { flow = 2, length = 500 })
    enqueue(udp { flow = 2, length = 500 })
    enqueue(udp { flow = 2, length = 500 })
  end
  for _ = 1, 400 do
    local packet = dequeue()
    if packet.length == 500 then small = small + 500 else large = large + 1500 end
  end
  assert(math.abs(small - 3 * large) <= 6000, "bytes: " .. small .. " and " .. large)
end)
LUA
quietly fairpath sched test stfq /tmp/shares.lua --runtime both
pass "a script has the same result in both runtimes"

for policy in fq_codel priority drr; do
	for home in native kernel; do
		fairpath sched run $policy --traffic 'bulk flows=4; voice' --rate 10mbit --duration 1s \
			--runtime $home --format json >/tmp/$home.json
		sed 's/"runtime": *"[a-z]*"//' /tmp/$home.json >/tmp/$home
	done
	grep -q '"packets' /tmp/native || fail "$policy: the simulation printed nothing"
	cmp -s /tmp/native /tmp/kernel || fail "$policy: the runtimes differ"
	pass "$policy: both runtimes send the same, at the same times"
done
