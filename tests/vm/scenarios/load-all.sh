# Every BPF object of the binary passes this kernel's verifier.
#
# kernels: floor newest
# needs: fairpath
# timeout: 300

# Prints `object NAME ok` or `object NAME error ...` per object.
status=0
fairpath features --load-all >/tmp/objects || status=$?
cat /tmp/objects

refused=$(awk '$1 == "object" && $3 != "ok" { printf "%s%s", sep, $2; sep = ", " }' /tmp/objects)
[ -z "$refused" ] || fail "refused by the kernel: $refused"
[ "$status" -eq 0 ] || fail "fairpath features --load-all ended with status $status"

loaded=$(grep -c '^object .* ok' /tmp/objects || true)
[ "$loaded" -gt 0 ] || fail "no object was loaded"
grep -q "^object cc_bbr3 ok" /tmp/objects || fail "the congestion control was not tried"
# Those that only newer kernels have a hook for.
[ "$FAIRPATH_VM_KERNEL" = floor ] || grep -q "^object qdisc ok" /tmp/objects || fail "the qdisc was not tried"
pass "$loaded BPF objects load"
