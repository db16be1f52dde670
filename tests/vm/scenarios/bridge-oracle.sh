# Verdicts and every counter of bridge rules are those of ebtables-legacy, on generated rulesets and frames.
#
# The evaluators, core and reference, run in the guest, next to the kernel's tables.
#
# kernels: floor
# needs: bridge-oracle ebtables-legacy ebtables-legacy-restore ip
# timeout: 900

ebtables-legacy -t filter -L >/tmp/listed 2>&1 ||
	skip ebtables-legacy "this kernel has no ebtable_filter: $(cat /tmp/listed)"

bridge-oracle >/tmp/compared 2>&1 || {
	cat /tmp/compared
	fail "$(tail -n 1 /tmp/compared)"
}
cat /tmp/compared
pass "$(tail -n 1 /tmp/compared)"
