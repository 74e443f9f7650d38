#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Checks that the packages that the test bench needs are installed, on Debian, Ubuntu, RHEL and Fedora.
#
#   packages.sh              names what is missing, and the command that installs it, and fails
#   packages.sh --install    installs what is missing, as root; no daemon of the machine is started
#   packages.sh --list       prints all names
set -euo pipefail

# Libvirt and QEMU with firmware; what a host's account needs; what host.sh and the guest's image are made with; what bare hosts
# are made with and run in; what cloud-init needs to read an image (only on Debian: these come from there).
debian=(
	libvirt-daemon-system libvirt-clients qemu-system-x86 qemu-utils ovmf
	openssh-server openssh-client sudo
	iproute2 iptables util-linux
	libxml2-utils busybox-static cpio xz-utils mtools dosfstools e2fsprogs fdisk syslinux syslinux-common gcc libc6-dev
	systemd-container mmdebstrap apt-utils
	shellcheck
	python3 python3-venv python3-configobj python3-jinja2 python3-jsonpatch python3-jsonschema python3-requests python3-yaml libarchive-tools
)
redhat=(
	libvirt-daemon-kvm libvirt-daemon libvirt-client qemu-kvm qemu-img edk2-ovmf
	openssh-server openssh-clients sudo
	iproute iptables-nft util-linux
	libxml2 busybox cpio mtools dosfstools syslinux
)

is_installed() {
	if [ "$family" = debian ]; then
		[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
	else
		rpm -q --whatprovides "$1" >/dev/null 2>&1
	fi
}

if command -v dpkg-query >/dev/null; then
	family=debian wanted=("${debian[@]}")
	command=(apt-get install -y --no-install-recommends)
elif command -v rpm >/dev/null; then
	family=redhat wanted=("${redhat[@]}")
	command=(dnf install -y)
else
	echo "packages.sh: neither dpkg nor rpm is here; the bench needs what these Debian packages hold: ${debian[*]}" >&2
	exit 1
fi

missing=()
for package in "${wanted[@]}"; do
	is_installed "$package" || missing+=("$package")
done

# install runs apt-get with a policy that keeps maintainer scripts from starting services; dnf never starts any.
install_missing() {
	local policy=/usr/sbin/policy-rc.d
	if [ "$family" = debian ]; then
		export DEBIAN_FRONTEND=noninteractive
		if ! [ -e "$policy" ]; then
			# An EXIT trap, because apt-get may fail.
			trap 'rm -f /usr/sbin/policy-rc.d' EXIT
			printf '#!/bin/sh\nexit 101\n' >"$policy"
			chmod 755 "$policy"
		fi
		apt-get update
	fi
	"${command[@]}" "${missing[@]}"
}

case ${1-} in
--list) printf '%s\n' "${wanted[@]}" ;;
--install | '')
	[ "${#missing[@]}" -gt 0 ] || exit 0
	if [ "${1-}" = --install ] && [ "$(id -u)" = 0 ]; then
		install_missing
	else
		echo "packages.sh: missing packages; as root: ${command[*]} ${missing[*]}" >&2
		exit 1
	fi
	;;
*)
	echo "usage: packages.sh [--install | --list]" >&2
	exit 2
	;;
esac
