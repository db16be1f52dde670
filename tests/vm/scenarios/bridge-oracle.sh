# Verdicts and every counter of bridge rules are those of ebtables-legacy, on generated rulesets and frames.
#
# The evaluators, core and reference, run in the guest, next to the kernel's tables.
#
# kernels: floor
# needs: bridge-oracle ebtables-legacy ebtables-legacy-restore ip
# timeout: 900

# Tables stay in a namespace from the first listing on, and packets around the stack bypass them.
ip netns add probe
ip netns exec probe ebtables-legacy -t filter -L >/tmp/listed 2>&1 ||
	skip ebtables-legacy "this kernel has no ebtable_filter: $(cat /tmp/listed)"

bridge-oracle >/tmp/compared 2>&1 || {
	cat /tmp/compared
	fail "$(tail -n 1 /tmp/compared)"
}
cat /tmp/compared
pass "$(tail -n 1 /tmp/compared)"
