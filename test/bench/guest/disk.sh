# shellcheck shell=bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# The part of build.sh that makes a disk of a kernel and a root file system, for other guests as well. The working directory is
# the builder's.

# In the order in which they are loaded; those that a kernel has built in are left out.
readonly modules='qemu_fw_cfg virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk
	failover net_failover virtio_net scsi_common scsi_mod virtio_scsi crc64 crc64_rocksoft_generic crc64-rocksoft
	crct10dif_common crct10dif_generic crc-t10dif t10-pi sd_mod libata libahci ahci cdrom sr_mod isofs e1000 e1000e
	crc16 crc32c_generic libcrc32c nls_cp437 nls_ascii nls_utf8 fat vfat mbcache jbd2 ext4 overlay'
# The boot loaders are silent and do not wait. The rest saves time in software emulation, where there is nothing to protect.
readonly command_line='console=ttyS0 quiet loglevel=3 panic=10 mitigations=off nokaslr random.trust_cpu=on'
# MiB: the boot partition follows a first, empty one; the root file system's partition follows it.
readonly start=1 boot_size=62

# make_initramfs KERNEL INIT [FILE…] makes initrd.gz with the modules of the kernel that is unpacked in that directory, and with
# files beside its first program.
make_initramfs() {
	local module file needed
	rm -rf initramfs
	mkdir -p initramfs/bin initramfs/lib
	: >initramfs/lib/modules.order
	cp /bin/busybox initramfs/bin/
	install -m 755 "$2" initramfs/init
	[ $# -lt 3 ] || cp "${@:3}" initramfs/
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

# make_root_fs DIR [FREE] makes root.ext4 of a directory, with that many MiB for what is written while a guest runs. Guests are
# not started again after a crash: it needs no journal.
make_root_fs() {
	local size
	size=$(($(du -sm --apparent-size "$1" | cut -f1) * 110 / 100 + $(find "$1" | wc -l) / 1000 + 12 + ${2:-0}))
	rm -f root.ext4
	mkfs.ext4 -q -L caplv-root -O ^has_journal -m 0 -E root_owner=0:0 -d "$1" root.ext4 "${size}M"
}

# make_disk KERNEL IMAGE LOADER makes an image, in qcow2, of the kernel's package, initrd.gz, root.ext4 and the package
# systemd-boot-efi; the packages are unpacked in directories.
make_disk() {
	local kernel=$1 image=$2 loader=$3 offset=$((start * 1048576)) root_size partition
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
	mcopy -i "$partition" "$loader"/usr/lib/systemd/boot/efi/systemd-bootx64.efi ::EFI/BOOT/BOOTX64.EFI
	mcopy -i "$partition" loader.conf ::loader/loader.conf
	mcopy -i "$partition" guest.conf ::loader/entries/guest.conf
	# Last, and by rename: what has this name is complete.
	qemu-img convert -q -O qcow2 -o compat=1.1 disk.raw "$image.new"
	mv "$image.new" "$image"
}
