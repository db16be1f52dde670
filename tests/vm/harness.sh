#!/bin/sh
# Runs one scenario of /fairpath/scenarios under `set -eu`, with the functions a scenario speaks through.
#
#     pass TEXT     a promise that held; a scenario needs at least one
#     fail TEXT     ends the scenario as failed
#     skip NEED TEXT  ends the scenario as skipped: NEED (feature:ID of `fairpath features`, or one word) is absent, and may be;
#                   a feature that this kernel has according to `fairpath features` fails it instead
#     repeated TEXT   counts a measurement that is repeated because of a disturbance: one that misses in a way that only a host
#                   without time for the guest explains; more than tests/budget.toml allows fail the run
#     restart       restarts the guest with this root on its disk, and runs the scenario again; FAIRPATH_VM_RESTARTS is the
#                   number of restarts. Only with Debian's user space
#     quietly CMD   runs CMD and shows its output only if it fails
#     jq -e ...     fails where its input is empty, too
#     await SECONDS CMD...   runs CMD until it succeeds; fails the scenario after three times that, for two guests and a
#                   build may share the processors
#
# FAIRPATH_VM_KERNEL is `floor` or `newest`. Leftovers (processes, namespaces, links, pins) are cleaned up by /init.

set -eu
. /fairpath/text.sh

pass() {
	: >/run/scenario/passed
	printf '\nFAIRPATH-VM {"event":"check","text":"%s"}\n' "$(printf %s "$*" | json_text)"
}

fail() {
	printf %s "$*" >/run/scenario/reason
	echo "fail: $*"
	exit 1
}

skip() {
	case $1 in
	feature:*)
		if fairpath features --format json 2>/dev/null | grep "\"feature\": *\"${1#feature:}\"" | grep -q '"available": *true'; then
			fail "skipped without $1, but \`fairpath features\` reports it as available"
		fi
		;;
	esac
	printf %s "$*" >/run/scenario/reason
	echo "skip: $*"
	exit 77
}

repeated() {
	echo "repeated: $*"
	printf '\nFAIRPATH-VM {"event":"repeat","text":"%s"}\n' "$(printf %s "$*" | json_text)"
}

# The first time, the root is the initramfs: the disk gets a copy of it.
restart() {
	if [ "$FAIRPATH_VM_RESTARTS" = 0 ]; then
		quietly modprobe virtio_blk
		quietly mkfs.ext4 -q -F /dev/vda
		quietly mount /dev/vda /mnt
		quietly cp -ax /. /mnt
		quietly umount /mnt
	fi
	printf '\nFAIRPATH-VM {"event":"restart"}\n'
	systemctl --no-block reboot
	while :; do busybox sleep 1; done
}

quietly() {
	"$@" >/run/scenario/output 2>&1 && return
	cat /run/scenario/output
	fail "$* failed"
}

await() {
	deadline=$(($(cut -d. -f1 /proc/uptime) + 3 * $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ "$(cut -d. -f1 /proc/uptime)" -lt "$deadline" ] || fail "timed out waiting for: $*"
		busybox usleep 50000
	done
}

# Empty output is a failure: jq 1.6 with -e accepts empty input.
jq() {
	[ "$1" = -e ] || {
		command jq "$@"
		return
	}
	said=$(command jq "$@") || return
	[ -n "$said" ] || return 4
	printf '%s\n' "$said"
}

. "/fairpath/scenarios/$1.sh"
