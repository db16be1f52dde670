# The package on Debian: installed, started, reconfigured, watched over, upgraded, removed and purged.
#
#     guest: eth0 10.9.0.1 ----------- eth0 10.9.0.2, in a namespace
#
# kernels: floor
# user-space: debian
# needs: fairpath mmdebstrap dpkg-deb dpkg-shlibdeps
# timeout: 700

OLD=/fairpath/packages/old.deb
NEW=/fairpath/packages/new.deb
UNIT=fairpath.service
CONFIGURATION=/etc/fairpath/fairpath.toml
STATE=/var/lib/fairpath
SOCKET=/run/fairpath/control.sock
OVERRIDE=/run/systemd/system/$UNIT.d
# The maximum score of `systemd-analyze security`, in tenths; docs/guide/install.md has the actual one.
EXPOSURE_LIMIT=32
# Starting loads BPF programs, which takes seconds on an emulated processor.
PATIENCE_S=60
# From dpkg to the first table; docs/guide/install.md.
TABLE_LIMIT_S=120
# Written by dpkg, apt, logging and, at midnight, dpkg's backup for any package; group and user stay by decision (packaging/debian/postrm).
NOT_OURS='^/(fairpath|var/log|var/cache|var/backups|var/lib/dpkg|tmp)(/|$)|^/etc/(group|gshadow|passwd|shadow)-?$'

trap 'status=$?; [ $status = 0 ] || journalctl --no-pager --lines 40 --unit $UNIT' EXIT

# Everything on the system: path, type, owner, mode and where links lead; of configuration also the content.
system_files() {
	find / -xdev -printf '%p %y %u:%g %m %l\n' | awk -v not_ours="$NOT_OURS" '$1 !~ not_ours' | sort
	find /etc -type f -exec md5sum {} + | awk -v not_ours="$NOT_OURS" '$2 !~ not_ours' | sort -k 2
}

state_of() { systemctl show --property "$1" --value $UNIT; }
is() { [ "$(state_of "$1")" = "$2" ]; }
must_be() { is "$1" "$2" || fail "$1 of the unit is $(state_of "$1"), not $2"; }
refused() { ! "$@" >/run/scenario/refused 2>&1; }
another_process() {
	case $(systemctl show --property ActiveState,MainPID $UNIT | sort | tr '\n' ' ') in
	"ActiveState=active MainPID=$process ") return 1 ;;
	"ActiveState=active MainPID="*) return 0 ;;
	*) return 1 ;;
	esac
}
table_has() { fairpath top --once | grep -q "$1"; }

# A namespace $1 behind the link $2, whose network is $3.0.
neighbour() {
	ip netns add "$1"
	ip link add "$2" type veth peer name eth0 netns "$1"
	ip address add "$3.1/24" dev "$2"
	ip link set "$2" up
	ip -n "$1" address add "$3.2/24" dev eth0
	ip -n "$1" link set eth0 up
	ip -n "$1" route add default via "$3.1"
}

system_files >/tmp/before
neighbour host eth0 10.9.0

## Installed, enabled and started
installing=$(cut -d. -f1 /proc/uptime)
quietly dpkg --install $OLD
quietly dpkg --verify fairpath
must_be UnitFileState enabled
must_be ActiveState active
must_be Type notify
[ "$(stat -c '%U:%G %a' $SOCKET)" = root:fairpath\ 660 ] || fail "the socket is $(stat -c '%U:%G %a' $SOCKET)"
pass "installed: enabled, active, its socket is for root and the group"
quietly fairpath status
quietly systemctl --no-pager status $UNIT
ping -i 0.2 10.9.0.2 >/dev/null &
await $PATIENCE_S table_has eth0
fairpath top --once
took=$(($(cut -d. -f1 /proc/uptime) - installing))
[ $took -le $TABLE_LIMIT_S ] || fail "the table took $took s"
pass "a table $took emulated seconds after dpkg began"

## Least privilege
systemd-analyze --no-pager security $UNIT | tee /run/scenario/security | tail -n 1
exposure=$(sed -n 's/.*exposure level for [^:]*: \([0-9]*\)\.\([0-9]\).*/\1\2/p' /run/scenario/security)
[ "${exposure:-99}" -le $EXPOSURE_LIMIT ] || {
	cat /run/scenario/security
	fail "its exposure is $exposure tenths, more than $EXPOSURE_LIMIT"
}
pass "systemd-analyze security: $(tail -n 1 /run/scenario/security | tr -dc '[:alnum:] .:')"

## Reloaded
process=$(state_of MainPID)
sed -i 's/^interfaces = .*/interfaces = ["eth0", "later*"] # ours/' $CONFIGURATION
quietly systemctl reload $UNIT
must_be MainPID "$process"
echo 'no_such_key = 1' >>$CONFIGURATION
refused systemctl reload $UNIT || fail "a broken configuration was taken in"
must_be MainPID "$process"
must_be ActiveState active
sed -i '/no_such_key/d' $CONFIGURATION
quietly systemctl reload $UNIT
cp $CONFIGURATION /tmp/ours
pass "reloads; a broken configuration is refused and changes nothing"

## Watched over
mkdir -p $OVERRIDE
printf '[Service]\nWatchdogSec=10\nTimeoutAbortSec=1\n' >$OVERRIDE/watchdog.conf
systemctl daemon-reload
quietly systemctl restart $UNIT
process=$(state_of MainPID)
restarts=$(state_of NRestarts)
kill -STOP "$process"
await $PATIENCE_S another_process
[ "$(state_of NRestarts)" -gt "$restarts" ] || fail "it was not the watchdog that restarted it"
# The upgrade's restart makes it the unit's own watchdog again.
rm -r $OVERRIDE
pass "a daemon that hangs is restarted by the watchdog"

## Alert hooks, within what the unit allows
cat >/tmp/listener.pl <<'PERL'
use IO::Socket::INET;
my $server = IO::Socket::INET->new(LocalAddr => '127.0.0.1:8080', Listen => 5, ReuseAddr => 1) or die $!;
while (my $client = $server->accept) {
	my $length = 0;
	while (my $line = <$client>) {
		$length = $1 if $line =~ /^content-length: *(\d+)/i;
		last if $line =~ /^\r?$/;
	}
	read($client, my $body, $length);
	open(my $file, '>>', '/run/scenario/alerts') or die $!;
	print $file "$body\n";
	close $file;
	print $client "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
	close $client;
}
PERL
perl /tmp/listener.pl &
listener=$!
# The example of docs/guide/run.md and docs/howto/alert-on-p95.md, with an address here. No packet is that fast.
hook='hook = ["/usr/bin/curl", "--silent", "--show-error", "--fail", "--json", "@-", "http://127.0.0.1:8080/alerts"]'
sed "s|^\[alerts\]|&\n$hook|" /tmp/ours >$CONFIGURATION
printf '[[class]]\nname = "anna"\nprefix = "10.9.0.2/32"\nrtt_p95 = "1us"\n' >>$CONFIGURATION
quietly systemctl restart $UNIT
await 120 grep -q sla_breach /run/scenario/alerts
grep -q anna /run/scenario/alerts || fail "$(cat /run/scenario/alerts)"
! journalctl --no-pager --unit $UNIT --output cat | grep -i "hook.*fail" || fail "the hook fails"
cp /tmp/ours $CONFIGURATION
quietly systemctl restart $UNIT
kill $listener
rm /tmp/listener.pl
pass "the guide's alert hook reaches a listener from the unit"

## Shaped, within what the unit allows
neighbour beyond eth1 10.9.1
echo 1 >/proc/sys/net/ipv4/ip_forward
shape_by() {
	sed 's/^interfaces = .*/interfaces = ["eth0", "eth1"]/' /tmp/ours >$CONFIGURATION
	printf '[shape]\ninside = "eth0"\noutside = "eth1"\ndown = "10mbit"\nup = "10mbit"\nvia = "%s"\n' $1 >>$CONFIGURATION
	quietly systemctl $2 $UNIT
	await $PATIENCE_S shaped_by "${3:-$1}"
	crosses
	fairpath shape status | head -n 2
}
shaped_by() { fairpath shape status | grep -q "^backend *$1 "; }
crosses() { quietly ip netns exec host ping -c 3 -i 0.2 -W 2 10.9.1.2; }
begun=$(date '+%F %T')
# A reload can also query the features of the kernel.
shape_by auto reload kernel
tc qdisc show dev eth0 | grep -q htb || fail "no HTB"
process=$(state_of MainPID)
kill -9 "$process"
crosses
tc qdisc show dev eth0 | grep -q htb || fail "HTB went with the daemon"
await $PATIENCE_S another_process
await $PATIENCE_S shaped_by kernel
[ -n "$(ls /sys/fs/bpf)" ] || fail "nothing is pinned"
shape_by nfqueue reload
! tc qdisc show dev eth0 | grep -q htb || fail "HTB is still there"
nft list ruleset | grep -q fairpath || fail "no rule"
shape_by afxdp restart
ip link show eth0 | grep -q xdp || fail "no XDP program"
cp /tmp/ours $CONFIGURATION
quietly systemctl restart $UNIT
crosses
[ -z "$(ls /sys/fs/bpf)" ] || fail "pinned: $(ls /sys/fs/bpf)"
[ -z "$(nft list ruleset)" ] || fail "rules: $(nft list ruleset)"
journalctl --no-pager --unit $UNIT --since "$begun" --output cat >/run/scenario/shaped
! grep "WARN\|ERROR" /run/scenario/shaped || fail "the daemon complains"
ip netns delete beyond
pass "shaped as a unit by HTB (chosen, killed and continued), NFQUEUE and AF_XDP; nothing stays"

## Upgraded
process=$(state_of MainPID)
quietly dpkg --force-confdef --force-confold --install $NEW
another_process || fail "the upgrade did not restart the daemon"
quietly cmp $CONFIGURATION /tmp/ours
grep -q 'new in this version' $CONFIGURATION.dpkg-dist || fail "the new configuration is not next to ours"
pass "upgraded: restarted, the changed configuration kept and the new one next to it"

## The administrator's word
quietly systemctl disable --now $UNIT
must_be ActiveState inactive
quietly dpkg --force-confdef --force-confold --install $NEW
must_be UnitFileState disabled
must_be ActiveState inactive
quietly systemctl enable --now $UNIT
must_be ActiveState active
pass "a disabled daemon stays disabled and stopped on upgrade"

## Removed
quietly dpkg --remove fairpath
must_be ActiveState inactive
! [ -e $SOCKET ] || fail "the socket is still there"
! [ -e /usr/bin/fairpath ] || fail "the binary is still there"
quietly cmp $CONFIGURATION /tmp/ours
[ -n "$(ls $STATE)" ] || fail "the state is gone"
pass "removed: stopped, configuration and state kept"
quietly dpkg --install $NEW
must_be UnitFileState enabled
must_be ActiveState active
quietly cmp $CONFIGURATION /tmp/ours
quietly fairpath status
pass "installed again: enabled and started with the configuration of before"

## Purged
quietly dpkg --purge fairpath
must_be LoadState not-found
system_files >/tmp/after
diff /tmp/before /tmp/after || fail "purging leaves something"
! [ -e /var/log/fairpath ] || fail "the log directory is still there"
[ -z "$(ls /sys/fs/bpf)" ] || fail "something is pinned"
getent group fairpath >/dev/null || fail "the group is gone"
getent passwd fairpath-hook >/dev/null || fail "the user of hooks is gone"
pass "purged: no file is left but what was there before"
