#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs on a test host and prints, in a stable order, everything that a machine could leave behind. Two listings are equal
# when nothing was.
set -euo pipefail
export LC_ALL=C

readonly account=caplv
uid=$(id -u "$account")
home=$(getent passwd "$account" | cut -d: -f6)

# The daemon that the functions below ask.
daemon=system
virsh() {
	if [ "$daemon" = system ]; then
		command virsh -q -c qemu:///system "$@"
	else
		setpriv --reuid "$account" --regid "$account" --init-groups --reset-env \
			env LC_ALL=C XDG_RUNTIME_DIR="/run/user/$uid" virsh -q -c qemu:///session "$@" </dev/null
	fi
}

# tree leaves out what systemd makes for its services under another name at each start.
tree() {
	[ -d "$1" ] || return 0
	find "$1" -mindepth 1 -name 'systemd-private-*' -prune -o -printf "%y %m %s %p %l\n" | sed 's/^d \([0-7]*\) [0-9]*/d \1/' | sort
}

# home_tree leaves out what the account's daemons keep for themselves: what they know about QEMU, and directories that they
# make at their first start or at that of a machine, but for those of one machine. virsh keeps an empty history.
home_tree() {
	tree "$home" | awk -v libvirt="^$home/\\.(config|cache)/libvirt" '
		{ path = ($1 == "d") ? $3 : $4 }
		path ~ libvirt && $1 == "d" && path !~ "/domain-" { next }
		path ~ libvirt "/qemu/cache/capabilities/" { next }
		path ~ libvirt "/virsh/history$" && $3 == 0 { next }
		{ print }'
}

# runtime_files lists what machines have there; the rest is of the daemons, which come and go.
runtime_files() {
	[ -d "/run/user/$uid" ] || return 0
	find "/run/user/$uid" -mindepth 1 \( -path '*/libvirt/qemu/run/*' -o -path '*/libvirt/qemu/lib/*' -o -path '*/libvirt/storage/run/*' \
		-o -path "/run/user/$uid/caplv*" \) ! -type d ! -name driver.pid ! -name autostarted | sort
}

section() {
	echo "== $1"
	shift
	"$@"
}

domains() {
	local uuid
	virsh list --all --uuid | sort | while read -r uuid; do
		[ -n "$uuid" ] || continue
		echo "$uuid $(virsh domname "$uuid") $(virsh domstate "$uuid")" | tr '\n' ' '
		echo
	done
}

pools() {
	local pool
	virsh pool-list --all | awk '{ print $1, $2, $3 }' | sort | while read -r pool state autostart; do
		[ -n "$pool" ] || continue
		echo "$pool $state autostart=$autostart"
		[ "$state" = active ] || continue
		# Volumes that libvirt knows, and below, files that are there.
		virsh vol-list "$pool" | awk -v pool="$pool" 'NF { print "  " pool "/" $1 }' | sort
	done
}

networks() { virsh net-list --all | awk 'NF { print $1, $2, "autostart=" $3 }' | sort; }

processes() {
	local pid process owner
	for process in /proc/[0-9]*; do
		pid=${process#/proc/}
		# What ended meanwhile is of no interest. The account's sshd processes are the tests' own connections.
		{ read -r name <"$process/comm"; } 2>/dev/null || continue
		case $name in
		sshd | sshd-session | sshd-auth) continue ;;
		qemu* | swtpm* | dnsmasq*) echo "$name" ;;
		*)
			owner=$(stat -c %u "/proc/$pid" 2>/dev/null) || continue
			# The account's own daemons start when they are asked for, and end by themselves; systemd's come and go with logins.
			case $owner:$name in
			"$uid:libvirtd" | "$uid:virtlogd" | "$uid:systemd" | "$uid:(sd-pam)" | "$uid:dbus-daemon") ;;
			"$uid:"*) echo "$name" ;;
			esac
			;;
		esac
	done | sort
}

links() { for link in /sys/class/net/*; do echo "${link##*/}"; done | sort; }

section domains domains
section pools pools
section networks networks
# Asking starts the account's daemon, which makes its directories: only where it has been started before.
if [ -d "$home/.config/libvirt" ] && [ -d "/run/user/$uid" ]; then
	daemon=session
	section 'domains of the session' domains
	section 'pools of the session' pools
fi
section links links
section processes processes
section 'mounts below /run/caplv' awk '$5 ~ "^/run/caplv" { print $5, $NF }' /proc/self/mountinfo
for dir in /run/caplv /var/lib/caplv /var/lib/libvirt/images /var/lib/libvirt/qemu /var/lib/libvirt/swtpm /etc/libvirt/qemu /etc/libvirt/storage \
	/var/log/libvirt/qemu /tmp /var/tmp /dev/shm; do
	section "files below $dir" tree "$dir"
done
section "files below $home" home_tree
section "files of machines below /run/user/$uid" runtime_files
