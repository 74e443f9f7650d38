# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# Says which processes of an account were started before it got into a group:
#
#   sh -s UID GROUP...
#
# A line each: "manager" for its systemd, "daemon PID" for a session daemon of libvirt. "machines" says that it runs QEMU.

uid=$1
shift
gids=
for group in "$@"; do
	# In check mode, the group may not be there yet.
	gid=$(getent group "$group" | cut -d: -f3)
	[ -z "$gid" ] || gids="$gids $gid"
done

lacks() {
	for gid in $gids; do
		case $1 in *" $gid "*) ;; *) return 0 ;; esac
	done
	return 1
}

for process in /proc/[0-9]*; do
	[ "$(stat -c %u "$process" 2>/dev/null)" = "$uid" ] || continue
	{ read -r name <"$process/comm"; } 2>/dev/null || continue
	groups=" $(sed -n 's/^\(Groups\|Gid\):[[:blank:]]*//p' "$process/status" 2>/dev/null | tr '\t\n' '  ') "
	case $name in
	qemu-* | qemu_*) echo machines ;;
	systemd) if lacks "$groups"; then echo manager; fi ;;
	libvirtd | virtqemud | virtstoraged | virtsecretd | virtproxyd) if lacks "$groups"; then echo "daemon ${process#/proc/}"; fi ;;
	esac
done
exit 0
