#!/bin/sh
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Prints what CAPLV has in a libvirt daemon, one thing a line, and changes nothing:
#
#   domain UUID NAME
#   disk PATH               of such a domain
#   pool NAME PATH          with its directory below /run/caplv
#
#   domains.sh system
#   domains.sh session ACCOUNT
#
# A daemon that cannot be asked is an error; libvirt that is not installed, or an account that never had a session, is not.
set -eu
export LC_ALL=C
mode=$1 account=${2-}
readonly owner='https://caplv.github.io/xmlns/libvirt/v1'

command -v virsh >/dev/null || exit 0
# A daemon that does not run, as packages of RHEL leave it, has nothing where there is no file of a domain or a pool.
if [ "$mode" = system ]; then
	[ -n "$(find /etc/libvirt/qemu /run/libvirt/qemu /etc/libvirt/storage /run/libvirt/storage -maxdepth 1 -name '*.xml' 2>/dev/null)" ] || exit 0
fi
if [ "$mode" = session ]; then
	uid=$(id -u "$account" 2>/dev/null) || exit 0
	home=$(getent passwd "$account" | cut -d: -f6)
	# Asking would start a daemon, which makes directories: only where there has been one.
	[ -d "/run/user/$uid" ] || exit 0
	[ -d "$home/.config/libvirt/qemu" ] || [ -d "/run/user/$uid/libvirt" ] || exit 0
fi
ask() {
	if [ "$mode" = system ]; then
		virsh -q -c qemu:///system "$@"
	else
		runuser -u "$account" -- env XDG_RUNTIME_DIR="/run/user/$uid" HOME="$home" virsh -q -c qemu:///session "$@"
	fi </dev/null
}

uuids=$(ask list --all --uuid)
for uuid in $uuids; do
	# One that has just ended is none.
	xml=$(ask dumpxml "$uuid" 2>/dev/null) || continue
	case $xml in
	*"$owner"*) ;;
	*) continue ;;
	esac
	printf 'domain %s %s\n' "$uuid" "$(printf '%s\n' "$xml" | sed -n "s|^  <name>\(.*\)</name>\$|\1|p")"
	printf '%s\n' "$xml" | sed -n "s|^      <source file='\([^']*\)'.*|disk \1|p"
done
for pool in $(ask pool-list --all --name); do
	ask pool-dumpxml "$pool" 2>/dev/null | sed -n "s|^    <path>\(/run/caplv/.*\)</path>|pool $pool \1|p"
done
