# The package on Debian: installed, started, reconfigured, upgraded, removed and purged.
#
# kernels: floor
# user-space: debian
# needs: fairpath mmdebstrap dpkg-deb dpkg-shlibdeps
# timeout: 240

OLD=/fairpath/packages/old.deb
NEW=/fairpath/packages/new.deb
UNIT=fairpath.service
CONFIGURATION=/etc/fairpath/fairpath.toml
# Written by dpkg, apt and logging for any package; the group stays by decision (packaging/debian/postrm).
NOT_OURS='^/(fairpath|proc|sys|dev|run|tmp|var/log|var/cache|var/lib/dpkg)(/|$)|^/etc/(group|gshadow)-?$'

trap 'status=$?; [ $status = 0 ] || journalctl --no-pager --lines 40 --unit $UNIT' EXIT

# Everything on the system: path, type, owner, mode and where links lead; of configuration also the content.
system_files() {
	find / -xdev -printf '%p %y %u:%g %m %l\n' | awk -v not_ours="$NOT_OURS" '$1 !~ not_ours' | sort
	find /etc -type f -exec md5sum {} + | awk -v not_ours="$NOT_OURS" '$2 !~ not_ours' | sort -k 2
}

state_of() { systemctl show --property "$1" --value $UNIT; }
is() { [ "$(state_of "$1")" = "$2" ]; }

system_files >/tmp/before
quietly dpkg --install $OLD
dpkg --verify fairpath
pass "installs, with $(dpkg-query --show --showformat '${Depends}' fairpath)"
getent group fairpath >/dev/null || fail "no group fairpath"
is UnitFileState enabled || fail "the unit is $(state_of UnitFileState)"
pass "enabled; the group exists"
quietly dpkg --purge fairpath
system_files >/tmp/after
diff /tmp/before /tmp/after || fail "purging leaves something"
pass "after purge nothing is left"
