#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds the test guest: OUTDIR/guest.qcow2, a disk that boots by BIOS and by UEFI into Debian's cloud kernel and reports
# on its serial console what the machine gave it (see init). Nothing is mounted or installed, and no root is needed.
#
#   build.sh OUTDIR
#
# Kernel and UEFI boot loader come from Debian's archive, so it runs on Debian.
set -euo pipefail

readonly kernel_package=linux-image-cloud-amd64
# In the order in which they are loaded; those that a kernel has built in are left out.
readonly modules='qemu_fw_cfg virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk
	failover net_failover virtio_net'
# The boot loaders are silent and do not wait. The rest saves time in software emulation, where there is nothing to protect.
readonly command_line='console=ttyS0 quiet loglevel=3 panic=10 mitigations=off nokaslr random.trust_cpu=on'
# Sectors: the partition starts after 1 MiB and ends with the disk.
readonly disk_sectors=131072 start=2048

out=$(mkdir -p "${1:?usage: build.sh OUTDIR}" && cd "$1" && pwd)
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if ! command -v apt-get >/dev/null; then
	echo "build.sh: the guest's kernel comes from Debian's archive; there is no apt-get" >&2
	exit 1
fi
"$here/../packages.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# fetch PACKAGE unpacks a package below root.
fetch() {
	# Root's apt-get downloads as another user, who may write here.
	apt-get -q -o APT::Sandbox::User=root download "$1" >&2
	dpkg -x "$1"_*.deb root
}

fetch_packages() {
	local image
	if [ -z "$(apt-cache -q0 show "$kernel_package" 2>/dev/null)" ] && [ "$(id -u)" = 0 ]; then apt-get update >&2; fi
	# The package of that name only depends on the kernel's.
	image=$(apt-cache depends --important "$kernel_package" | awk '$1 == "Depends:" { print $2; exit }')
	[ -n "$image" ] || { echo "build.sh: apt knows no $kernel_package; run apt-get update" >&2 && exit 1; }
	fetch "$image"
	fetch systemd-boot-efi
}

make_initramfs() {
	local module file
	mkdir -p initramfs/bin initramfs/lib
	cp /bin/busybox initramfs/bin/
	install -m 755 "$here/init" initramfs/init
	for module in $modules; do
		file=$(find root/ -name "$module.ko*" | head -1)
		case $file in
		*.ko) cp "$file" initramfs/lib/ ;;
		*.ko.xz) xz -dc "$file" >"initramfs/lib/$module.ko" ;;
		*.ko.zst) zstd -dcq "$file" >"initramfs/lib/$module.ko" ;;
		*) continue ;;
		esac
		echo "$module" >>initramfs/lib/modules.order
	done
	(cd initramfs && find . | cpio --quiet -o -H newc -R 0:0) | gzip -9n >initrd.gz
}

make_disk() {
	local partition=disk.raw@@$((start * 512))
	truncate -s $((disk_sectors * 512)) disk.raw
	# One active partition serves both: BIOS runs its boot sector, UEFI finds the type of a system partition.
	echo "$start,,ef,*" | sfdisk --quiet --label dos disk.raw
	dd if=/usr/lib/syslinux/mbr/mbr.bin of=disk.raw bs=440 count=1 conv=notrunc status=none
	mkfs.vfat -F 16 -n CAPLV -h "$start" --offset "$start" disk.raw $(((disk_sectors - start) / 2)) >/dev/null
	syslinux --offset $((start * 512)) --install disk.raw
	printf 'DEFAULT guest\nPROMPT 0\nLABEL guest\nKERNEL /vmlinuz\nAPPEND initrd=/initrd.gz %s\n' "$command_line" >syslinux.cfg
	printf 'timeout 0\ndefault guest.conf\neditor no\n' >loader.conf
	printf 'title guest\nlinux /vmlinuz\ninitrd /initrd.gz\noptions %s\n' "$command_line" >guest.conf
	mmd -i "$partition" ::EFI ::EFI/BOOT ::loader ::loader/entries
	mcopy -i "$partition" root/boot/vmlinuz-* ::vmlinuz
	mcopy -i "$partition" initrd.gz ::initrd.gz
	mcopy -i "$partition" syslinux.cfg ::syslinux.cfg
	mcopy -i "$partition" root/usr/lib/systemd/boot/efi/systemd-bootx64.efi ::EFI/BOOT/BOOTX64.EFI
	mcopy -i "$partition" loader.conf ::loader/loader.conf
	mcopy -i "$partition" guest.conf ::loader/entries/guest.conf
}

fetch_packages
make_initramfs
make_disk
qemu-img convert -q -O qcow2 -o compat=1.1 disk.raw guest.qcow2
# Last, and by rename: what has this name is complete.
mv guest.qcow2 "$out/.guest.qcow2"
mv "$out/.guest.qcow2" "$out/guest.qcow2"
