# Runs scenarios one after the other and reports on the console, for the script that sources this file: `init` or `debian`.
#
#     FAIRPATH-VM {"event":"ready"}
#     FAIRPATH-VM {"event":"start","scenario":NAME}
#     FAIRPATH-VM {"event":"check","text":TEXT}                               one per pass, from harness.sh
#     FAIRPATH-VM {"event":"repeat","text":TEXT}                              one per repeated measurement, from harness.sh
#     FAIRPATH-VM {"event":"restart"}                                         the guest ends and starts again, from harness.sh
#     FAIRPATH-VM {"event":"end","result":"pass"|"fail"|"skip","reason":TEXT}
#     FAIRPATH-VM {"event":"done"}
#
# `clean` is the caller's: it puts the guest back into the state that a scenario begins with.

. /fairpath/text.sh

# Set by SIGKILL, by `timeout` below.
KILLED=137
# Exit status of a scenario that calls skip.
SKIPPED=77
# /proc/sys/kernel/tainted: the kernel died (bit 7) or warned (bit 9).
DIED_OR_WARNED=640

report() {
	# A separate line, even after output without a newline.
	printf '\nFAIRPATH-VM %s\n' "$1"
}

tainted() {
	echo $(($(cat /proc/sys/kernel/tainted) & DIED_OR_WARNED))
}

run() {
	name=$1
	timeout=$(awk -v name="$name" '$1 == name { print $2 }' /fairpath/timeouts)
	rm -rf /run/scenario
	mkdir -p /run/scenario
	before=$(tainted)
	report "{\"event\":\"start\",\"scenario\":\"$name\"}"
	dmesg -c >/dev/null
	timeout -s KILL "$timeout" setsid /bin/sh /fairpath/harness.sh "$name"
	status=$?
	case $status in
	0) result=pass ;;
	"$SKIPPED") result=skip ;;
	*) result=fail ;;
	esac
	reason=$(cat /run/scenario/reason 2>/dev/null)
	case $status in
	0 | "$SKIPPED") ;;
	"$KILLED") reason="killed after $timeout s" ;;
	*) reason=${reason:-"the script ended with status $status"} ;;
	esac
	if [ "$result" = pass ] && ! [ -e /run/scenario/passed ]; then
		result=fail reason="it ended without a single check"
	fi
	# Here, and not behind the report: what warns while things are taken down is this scenario's.
	clean
	if [ "$(tainted)" != "$before" ]; then
		result=fail reason="${reason:+$reason; }the kernel warned"
	fi
	[ "$result" = fail ] && dmesg | tail -n 40
	report "{\"event\":\"end\",\"result\":\"$result\",\"reason\":\"$(printf %s "$reason" | json_text)\"}"
}

run_all() {
	report '{"event":"ready"}'
	for name in "$@"; do run "$name"; done
	report '{"event":"done"}'
}
