#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds the root file system of a test host that looks like Rocky Linux to whoever sets it up, in a layer over Debian 12, and
# prints its directories as rootfs.sh does:
#
#   rocky.sh rocky8    has a real rpm and dnf, and a repository in /srv/packages with packages of RHEL's names, paths, accounts and
#                      units. What is in them are Debian's binaries: libvirt 9.0 with its one libvirtd, QEMU 7.2, OpenSSH 9.2,
#                      Python 3.11. A policy of SELinux is there, Debian's, and the kernel knows nothing of it.
#
# It needs root and what rootfs.sh needs. CAPLV_CACHE is as for rootfs.sh.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${CAPLV_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/caplv}/rootfs
readonly here cache

die() {
	echo "rocky.sh: $1" >&2
	exit 1
}

# build LOWER TARGET
build() {
	local lower=$1 target=$2
	rm -rf "$target.new"
	mkdir -p "$target.new"/{root,work,merged}
	echo "rocky.sh: building $(basename "$target"); this takes a minute or two" >&2
	# The mounts are in a namespace of its own, and go with it.
	unshare --mount bash -euc '
		merged=$2/merged
		mount -t overlay -o "lowerdir=$1,upperdir=$2/root,workdir=$2/work" caplv-bench "$merged"
		mount -t proc proc "$merged/proc"
		mount -t tmpfs tmpfs "$merged/mnt"
		cp -a "$4"/rocky/. "$merged/mnt/"
		cat /etc/resolv.conf >"$merged/etc/resolv.conf"
		cat "$3" >"$merged/etc/apt/sources.list"
		export DEBIAN_FRONTEND=noninteractive LC_ALL=C HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin
		chroot "$merged" apt-get update --quiet=2
		chroot "$merged" apt-get install --yes --quiet=2 --no-install-recommends dnf python3-dnf rpm createrepo-c selinux-policy-default selinux-utils
		chroot "$merged" apt-get install --yes --quiet=2 --no-install-recommends --download-only -o Dir::Cache::archives=/srv/packages \
			policycoreutils-python-utils
		chroot "$merged" bash /mnt/packages.sh /mnt
		chroot "$merged" bash /mnt/system.sh' bash "$lower" "$target.new" "${lower%/root}/sources.list" "$here" >&2
	rm -rf "$target.new/work" "$target.new/merged"
	mv -T "$target.new" "$target"
}

[ "$(id -u)" = 0 ] || die "building a root file system needs root"
[ "${1-}" = rocky8 ] || die "usage: rocky.sh rocky8"
lower=$("$here/rootfs.sh" debian12)
key=$(cat "$here/rootfs.sh" "$here/rocky.sh" "$here"/rocky/* | sha256sum | cut -c1-12)
target=$cache/$1-$key
(
	flock 9
	if [ ! -d "$target" ]; then build "$lower" "$target" 9>&-; fi
) 9>"$cache/$1.lock"
echo "$target/root:$lower"
