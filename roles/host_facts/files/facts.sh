#!/bin/sh
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Prints how this host is set up, as lines of KEY VALUE, and changes nothing. What is not there is left out.
#
#   facts.sh ACCOUNT MODE POOL…
set -u
export LC_ALL=C
account=$1 mode=$2
shift 2

# setting KEY prints what libvirt's settings for QEMU say, if anything.
setting() { sed -n "s/^[[:space:]]*$1[[:space:]]*=[[:space:]]*\"\{0,1\}+\{0,1\}\([^\"[:space:]#]*\).*/\1/p" /etc/libvirt/qemu.conf 2>/dev/null | tail -n 1; }

ask() {
	if [ "$mode" = system ]; then
		virsh -q -c qemu:///system "$@"
	else
		runuser -u "$account" -- env XDG_RUNTIME_DIR="/run/user/$uid" HOME="$home" virsh -q -c qemu:///session "$@"
	fi
}

if uid=$(id -u "$account" 2>/dev/null); then
	home=$(getent passwd "$account" | cut -d: -f6)
	echo "uid $uid"
	echo "group $(id -gn "$account")"
fi
user=$(setting user) group=$(setting group)
[ -z "$user" ] || echo "qemu_user $user"
[ -z "$group" ] || echo "qemu_group $group"
for unit in libvirtd.service libvirtd.socket; do
	if systemctl is-active --quiet "$unit" || systemctl is-enabled --quiet "$unit" 2>/dev/null; then
		echo "daemon libvirtd"
		break
	fi
done
for descriptor in /etc/qemu/firmware/*.json /usr/share/qemu/firmware/*.json; do
	[ ! -e "$descriptor" ] || echo "firmware $descriptor"
done
[ -n "$uid" ] || exit 0
for pool; do
	path=$(ask pool-dumpxml "$pool" </dev/null 2>/dev/null | sed -n 's|^ *<path>\(.*\)</path>$|\1|p')
	[ -z "$path" ] || echo "pool $pool $path"
done
