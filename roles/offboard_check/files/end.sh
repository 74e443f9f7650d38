#!/bin/sh
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Ends what domains.sh has found in a libvirt daemon: reads its lines from standard input. Disks stay.
#
#   end.sh system
#   end.sh session ACCOUNT
set -eu
export LC_ALL=C
mode=$1 account=${2-}
if [ "$mode" = session ]; then
	uid=$(id -u "$account")
	home=$(getent passwd "$account" | cut -d: -f6)
fi
ask() {
	if [ "$mode" = system ]; then
		virsh -q -c qemu:///system "$@"
	else
		runuser -u "$account" -- env XDG_RUNTIME_DIR="/run/user/$uid" HOME="$home" virsh -q -c qemu:///session "$@"
	fi </dev/null
}

while read -r what which _; do
	case $what in
	domain)
		# One that is off cannot be stopped, and a transient one is gone when it has.
		ask destroy "$which" 2>/dev/null || :
		if ask domstate "$which" >/dev/null 2>&1; then ask undefine "$which" --nvram --managed-save --snapshots-metadata; fi
		;;
	pool)
		ask pool-destroy "$which" 2>/dev/null || :
		if ask pool-info "$which" >/dev/null 2>&1; then ask pool-undefine "$which"; fi
		;;
	esac
done
