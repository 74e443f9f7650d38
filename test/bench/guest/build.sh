#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds the test guests, disks that boot by BIOS and by UEFI and report on their serial console what the machine gave them
# (see init and configure):
#
#   OUTDIR/guest.qcow2             with Debian's cloud kernel, Ignition (2.x and 3.x) and NetworkManager
#   OUTDIR/guest-cloudinit.qcow2   with Debian's ordinary kernel, which has SATA too, cloud-init and NetworkManager
#
#   build.sh OUTDIR
#
# Everything comes from Debian's archive, so it runs on Debian; only Ignition 2.x, which Debian does not have, is built from
# its Go module. Nothing is mounted or installed, and no root is needed.
set -euo pipefail

# In the order in which they are loaded; those that a kernel has built in are left out.
readonly modules='qemu_fw_cfg virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk
	failover net_failover virtio_net scsi_common scsi_mod virtio_scsi crc64 crc64_rocksoft_generic crc64-rocksoft
	crct10dif_common crct10dif_generic crc-t10dif t10-pi sd_mod libata libahci ahci cdrom sr_mod isofs e1000 e1000e
	crc16 crc32c_generic libcrc32c nls_cp437 nls_ascii nls_utf8 fat vfat mbcache jbd2 ext4 overlay'
# The boot loaders are silent and do not wait. The rest saves time in software emulation, where there is nothing to protect.
readonly command_line='console=ttyS0 quiet loglevel=3 panic=10 mitigations=off nokaslr random.trust_cpu=on'
# MiB: the boot partition follows a first, empty one; the root file system's partition follows it.
readonly start=1 boot_size=62

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

# make_initramfs KERNEL makes initrd.gz with the modules of the kernel that is unpacked in that directory.
make_initramfs() {
	local module file needed
	rm -rf initramfs
	mkdir -p initramfs/bin initramfs/lib
	: >initramfs/lib/modules.order
	cp /bin/busybox initramfs/bin/
	install -m 755 "$here/init" initramfs/init
	cp "$here/configure" initramfs/
	for module in $modules; do
		file=$(find "$1" -name "$module.ko*" -print -quit)
		case $file in
		*.ko) cp "$file" initramfs/lib/ ;;
		*.ko.xz) xz -dc "$file" >"initramfs/lib/$module.ko" ;;
		*.ko.zst) zstd -dcq "$file" >"initramfs/lib/$module.ko" ;;
		*) continue ;;
		esac
		# What a kernel has built in is not among them.
		for needed in $(tr '\0' '\n' <"initramfs/lib/$module.ko" | sed -n 's/^depends=//p' | tr ',' ' '); do
			tr '-' '_' <initramfs/lib/modules.order | grep -qx "${needed//-/_}" ||
				{ echo "build.sh: $module needs $needed, which has to come before it in the list of modules" >&2 && exit 1; }
		done
		echo "$module" >>initramfs/lib/modules.order
	done
	(cd initramfs && find . | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0) | gzip -9n >initrd.gz
}

# make_root_fs DIR makes root.ext4 of a directory. Nothing is written to it while a guest runs: it needs no space, no journal.
make_root_fs() {
	local size
	size=$(($(du -sm --apparent-size "$1" | cut -f1) * 110 / 100 + $(find "$1" | wc -l) / 1000 + 12))
	rm -f root.ext4
	mkfs.ext4 -q -L caplv-root -O ^has_journal -m 0 -E root_owner=0:0 -d "$1" root.ext4 "${size}M"
}

# make_disk KERNEL NAME makes the image of the kernel's package, initrd.gz and root.ext4.
make_disk() {
	local kernel=$1 name=$2 offset=$((start * 1048576)) root_size partition
	root_size=$(($(stat -c %s root.ext4) / 1048576))
	partition=disk.raw@@$offset
	rm -f disk.raw
	truncate -s $((start + boot_size + root_size + 1))M disk.raw
	# One active partition serves both: BIOS runs its boot sector, UEFI finds the type of a system partition.
	printf '%sMiB,%sMiB,ef,*\n%sMiB,%sMiB,83\n' "$start" "$boot_size" $((start + boot_size)) "$root_size" | sfdisk --quiet --label dos disk.raw
	dd if=/usr/lib/syslinux/mbr/mbr.bin of=disk.raw bs=440 count=1 conv=notrunc status=none
	dd if=root.ext4 of=disk.raw bs=1M seek=$((start + boot_size)) conv=notrunc,sparse status=none
	mkfs.vfat -F 16 -n CAPLV -h $((offset / 512)) --offset $((offset / 512)) disk.raw $((boot_size * 1024)) >/dev/null
	syslinux --offset "$offset" --install disk.raw
	printf 'DEFAULT guest\nPROMPT 0\nLABEL guest\nKERNEL /vmlinuz\nAPPEND initrd=/initrd.gz %s\n' "$command_line" >syslinux.cfg
	printf 'timeout 0\ndefault guest.conf\neditor no\n' >loader.conf
	printf 'title guest\nlinux /vmlinuz\ninitrd /initrd.gz\noptions %s\n' "$command_line" >guest.conf
	mmd -i "$partition" ::EFI ::EFI/BOOT ::loader ::loader/entries
	mcopy -i "$partition" "$kernel"/boot/vmlinuz-* ::vmlinuz
	mcopy -i "$partition" initrd.gz ::initrd.gz
	mcopy -i "$partition" syslinux.cfg ::syslinux.cfg
	mcopy -i "$partition" boot/usr/lib/systemd/boot/efi/systemd-bootx64.efi ::EFI/BOOT/BOOTX64.EFI
	mcopy -i "$partition" loader.conf ::loader/loader.conf
	mcopy -i "$partition" guest.conf ::loader/entries/guest.conf
	qemu-img convert -q -O qcow2 -o compat=1.1 disk.raw "$name"
	# Last, and by rename: what has this name is complete.
	mv "$name" "$out/.$name"
	mv "$out/.$name" "$out/$name"
}

# make_guest NAME KERNEL-PACKAGE MAKE-ROOT
make_guest() {
	unpack_kernel "$2" kernel
	make_initramfs kernel
	rm -rf root
	"$3" root
	make_root_fs root
	make_disk kernel "$1"
}

update_lists linux-image-cloud-amd64
download systemd-boot-efi boot
make_guest guest.qcow2 linux-image-cloud-amd64 make_ignition_root
make_guest guest-cloudinit.qcow2 linux-image-amd64 make_cloudinit_root
