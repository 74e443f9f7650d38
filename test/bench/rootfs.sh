#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds the root file system of a bare test host, into the cache, and prints its directory, or several with colons between
# them, the topmost first, as overlayfs wants them:
#
#   rootfs.sh debian12|debian13                    boots with systemd, has sshd, sudo and Python, and nothing of libvirt
#   rootfs.sh debian12-libvirt|debian13-libvirt    has the packages of libvirt and QEMU on top, as somebody has left them
#
# Packages to install come from a repository of the host's own in /srv/packages, because hosts have no way out of the machine.
# It needs root, mmdebstrap and a way to the mirror of Debian that mmdebstrap takes by itself.
#
# CAPLV_CACHE (~/.cache/caplv) holds rootfs/IMAGE-KEY, where KEY stands for what this script says.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${CAPLV_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/caplv}/rootfs
readonly here cache

# What a host that somebody has installed has anyway.
base=(systemd systemd-sysv dbus libpam-systemd python3 python3-apt openssh-server sudo iproute2 ca-certificates procps kmod logrotate)
# What the roles install; what they need is in the repository as well.
packages=(libvirt-daemon-system libvirt-clients qemu-system-x86 qemu-utils ovmf swtpm swtpm-tools
	libcap2-bin util-linux xz-utils zstd acl dnsmasq-base polkitd)

die() {
	echo "rootfs.sh: $1" >&2
	exit 1
}

# fill ROOT runs in the new file system's directory, before apt's lists of the mirror are deleted.
fill() {
	local root=$1
	chroot "$root" apt-get install --yes --quiet=2 --no-install-recommends --download-only "${packages[@]}" >&2
	mkdir -p "$root/srv/packages"
	mv "$root"/var/cache/apt/archives/*.deb "$root/srv/packages/"
	(cd "$root/srv/packages" && apt-ftparchive packages . >Packages && apt-ftparchive release . >Release)
	# Beside the file system: rocky.sh installs more from there.
	cat "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/*.list >"$root/../sources.list" 2>/dev/null || [ -s "$root/../sources.list" ]
	rm -f "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/*
	echo 'deb [trusted=yes] file:/srv/packages ./' >"$root/etc/apt/sources.list"
	# As an administrator would have it who has tuned libvirt before: packages keep these files.
	echo 'Dpkg::Options { "--force-confold"; };' >"$root/etc/apt/apt.conf.d/90caplv-bench"
	mkdir -p "$root/etc/libvirt"
	# The host has no cgroups to give away, and the machine's AppArmor or SELinux knows nothing of its paths.
	printf 'cgroup_controllers = [ ]\nsecurity_driver = "none"\n' >"$root/etc/libvirt/qemu.conf"
	# All hosts of the machine have the same board.
	echo 'host_uuid_source = "machine-id"' >"$root/etc/libvirt/libvirtd.conf"
	# host.sh makes these for each host.
	rm -f "$root"/etc/ssh/ssh_host_* "$root/etc/hostname"
	: >"$root/etc/machine-id"
}

build() {
	local suite=$1 target=$2
	rm -rf "$target.new"
	mkdir -p "$target.new"
	echo "rootfs.sh: building $(basename "$target") from Debian's packages; this takes a minute or two" >&2
	# The hook runs this script again; mmdebstrap leaves apt's lists alone until then.
	TMPDIR=${TMPDIR:-/var/tmp} mmdebstrap --quiet --variant=minbase --format=directory \
		--include="$(IFS=, && echo "${base[*]}")" --customize-hook="$here/rootfs.sh fill \"\$1\"" \
		"$suite" "$target.new/root" >&2
	chroot "$target.new/root" apt-get update --quiet=2 >&2
	mv -T "$target.new" "$target"
}

# install LOWER TARGET installs the packages in a layer over another file system. No daemon is started.
install() {
	local lower=$1 target=$2
	rm -rf "$target.new"
	mkdir -p "$target.new"/{root,work,merged}
	echo "rootfs.sh: building $(basename "$target"); this takes a minute" >&2
	# The mount is in a namespace of its own, and goes with it.
	unshare --mount bash -euc '
		mount -t overlay -o "lowerdir=$1,upperdir=$2/root,workdir=$2/work" caplv-bench "$2/merged"
		mount -t proc proc "$2/merged/proc"
		printf "#!/bin/sh\nexit 101\n" >"$2/merged/usr/sbin/policy-rc.d"
		chmod 755 "$2/merged/usr/sbin/policy-rc.d"
		DEBIAN_FRONTEND=noninteractive chroot "$2/merged" apt-get install --yes --quiet=2 --no-install-recommends "${@:3}" >&2
		rm -f "$2/merged/usr/sbin/policy-rc.d"' bash "$lower" "$target.new" "${packages[@]}" >&2
	rm -rf "$target.new/work" "$target.new/merged"
	mv -T "$target.new" "$target"
}

[ "$(id -u)" = 0 ] || die "building a root file system needs root"
case ${1-} in
fill)
	fill "$2"
	exit 0
	;;
debian12 | debian12-libvirt) suite=bookworm ;;
debian13 | debian13-libvirt) suite=trixie ;;
*) die "usage: rootfs.sh debian12|debian13|debian12-libvirt|debian13-libvirt" ;;
esac
command -v mmdebstrap apt-ftparchive >/dev/null || die "mmdebstrap or apt-utils is missing; run test/bench/packages.sh --install"
key=$(sha256sum <"$here/rootfs.sh" | cut -c1-12)
target=$cache/$1-$key
mkdir -p "$cache"
(
	flock 9
	if [ -d "$target" ]; then exit; fi
	case $1 in
	*-libvirt) install "$("$here/rootfs.sh" "${1%-libvirt}" 9>&-)" "$target" 9>&- ;;
	*) build "$suite" "$target" 9>&- ;;
	esac
) 9>"$cache/$1.lock"
case $1 in
*-libvirt) echo "$target/root:$("$here/rootfs.sh" "${1%-libvirt}")" ;;
*) echo "$target/root" ;;
esac
