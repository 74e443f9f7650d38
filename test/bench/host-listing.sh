#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs on a test host and prints, in a stable order, everything that a machine could leave behind. Two listings are equal
# when nothing was.
set -euo pipefail
export LC_ALL=C

virsh() { command virsh -q -c qemu:///system "$@"; }

tree() {
	[ -d "$1" ] || return 0
	find "$1" -mindepth 1 -printf "%y %m %s %p %l\n" | sed 's/^d \([0-7]*\) [0-9]*/d \1/' | sort
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
	local uid pid process
	uid=$(id -u caplv)
	for process in /proc/[0-9]*; do
		pid=${process#/proc/}
		# What ended meanwhile is of no interest. The account's sshd processes are the tests' own connections.
		{ read -r name <"$process/comm"; } 2>/dev/null || continue
		case $name in
		sshd) continue ;;
		qemu* | swtpm* | dnsmasq*) echo "$name" ;;
		*) [ "$(stat -c %u "/proc/$pid" 2>/dev/null)" != "$uid" ] || echo "$name" ;;
		esac
	done | sort
}

links() { for link in /sys/class/net/*; do echo "${link##*/}"; done | sort; }

section domains domains
section pools pools
section networks networks
section links links
section processes processes
section 'mounts below /run/caplv' awk '$5 ~ "^/run/caplv" { print $5, $NF }' /proc/self/mountinfo
for dir in /run/caplv /var/lib/libvirt/images /var/lib/libvirt/qemu /var/lib/libvirt/swtpm /etc/libvirt/qemu /etc/libvirt/storage \
	/var/log/libvirt/qemu /home/caplv /tmp /var/tmp /dev/shm; do
	section "files below $dir" tree "$dir"
done
