#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds the test guests, disks that boot by BIOS and by UEFI and report on their serial console what the machine gave them
# (see init and configure):
#
#   OUTDIR/guest.qcow2             with Debian's cloud kernel, Ignition (2.x and 3.x) and NetworkManager
#   OUTDIR/guest-cloudinit.qcow2   with Debian's ordinary kernel, which has SATA too, cloud-init and NetworkManager
#   OUTDIR/vmlinuz, OUTDIR/initramfs.img, OUTDIR/cmdline   what guest.qcow2 boots, for machines that boot it directly
#
#   build.sh OUTDIR
#
# Everything comes from Debian's archive, so it runs on Debian; only Ignition 2.x, which Debian does not have, is built from
# its Go module. Nothing is mounted or installed, and no root is needed.
set -euo pipefail

out=$(mkdir -p "${1:?usage: build.sh OUTDIR}" && cd "$1" && pwd)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if ! command -v apt-get >/dev/null; then
	echo "build.sh: the guests are made of Debian's packages; there is no apt-get" >&2
	exit 1
fi
"$here/../packages.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# shellcheck source=roots.sh
. "$here/roots.sh"
# shellcheck source=disk.sh
. "$here/disk.sh"

# make_guest NAME KERNEL-PACKAGE MAKE-ROOT
make_guest() {
	unpack_kernel "$2" kernel
	make_initramfs kernel "$here/init" "$here/configure"
	rm -rf root
	"$3" root
	make_root_fs root
	make_disk kernel "$out/$1" boot
}

update_lists linux-image-cloud-amd64
download systemd-boot-efi boot
make_guest guest.qcow2 linux-image-cloud-amd64 make_ignition_root
cp kernel/boot/vmlinuz-* "$out/vmlinuz"
cp initrd.gz "$out/initramfs.img"
# shellcheck disable=SC2154 # It is disk.sh's.
printf '%s\n' "$command_line" >"$out/cmdline"
make_guest guest-cloudinit.qcow2 linux-image-amd64 make_cloudinit_root
