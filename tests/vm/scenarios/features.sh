# `fairpath features` finds what these kernels are known to have.
#
# kernels: floor newest
# needs: fairpath jq
# timeout: 60

# The contract with `fairpath features --format json`: one object a line.
FEATURE=.feature
AVAILABLE=.available
BOTH="tcx arena xdp_native netfilter_bpf bpf_tcp_cc af_xdp flower netem fq"
NEWEST="bpf_qdisc"

fairpath features --format json >/tmp/features || fail "fairpath features ended with status $?"
cat /tmp/features

expected=$BOTH
[ "$FAIRPATH_VM_KERNEL" = floor ] || expected="$expected $NEWEST"
missing=
for feature in $expected; do
	found=$(jq -r "select($FEATURE == \"$feature\") | $AVAILABLE" /tmp/features)
	[ "$found" = true ] || missing="$missing $feature=${found:-unlisted}"
done
[ -z "$missing" ] || fail "not found:$missing"
pass "available: $expected"
