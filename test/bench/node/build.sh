#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds the guest that becomes a node of a cluster, a disk that boots by BIOS and by UEFI:
#
#   OUTDIR/guest-node.qcow2   with systemd, containerd, runc, NetworkManager and the given kubelet
#
#   build.sh OUTDIR KUBELET
#
# Everything but the kubelet comes from Debian 12. As on machines of OpenShift, Ignition runs in the initramfs, at the first boot
# (see init), and brings the kubelet's unit and its configuration: the image has neither. It needs root, mmdebstrap and a way to
# the mirror of Debian that mmdebstrap takes by itself. hack/node-image.sh calls it.
set -euo pipefail

readonly suite=bookworm
# Debian's Ignition is that of github.com/coreos/ignition/v2. Only the program is of use: its package wants dracut.
readonly packages=(systemd-sysv dbus udev kmod iproute2 network-manager ca-certificates containerd runc containernetworking-plugins)
# What takes the emulated processor's time, and is of no use to a node that lives for some minutes.
readonly useless=(usr/share/{doc,man,locale,info,i18n,zoneinfo,lintian,bash-completion,perl5} usr/lib/x86_64-linux-gnu/{perl,gconv}
	usr/lib/udev/hwdb.d usr/lib/udev/hwdb.bin usr/bin/containerd-stress usr/bin/containerd-shim usr/bin/containerd-shim-runc-v1
	var/lib/apt/lists var/cache/apt var/log/dpkg.log var/log/apt etc/NetworkManager/dispatcher.d)
readonly unused_units=(serial-getty@ttyS0.service modprobe@{configfs,dm_mod,drm,efi_pstore,fuse,loop}.service sys-kernel-{config,debug,tracing}.mount
	sys-fs-fuse-connections.mount dev-hugepages.mount systemd-{binfmt,pstore,update-utmp,update-utmp-runlevel,user-sessions}.service systemd-ask-password-{console,wall}.{path,service}
	NetworkManager-dispatcher.service)
# MiB for what the node writes.
readonly free=400

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../guest/disk.sh
. "$here/../guest/disk.sh"

# fetch ROOT PACKAGE DIR unpacks a package of the new system's archive, without what it needs.
fetch() {
	local downloads=$1/tmp/downloads
	mkdir -p "$downloads" "$3"
	(cd "$downloads" && chroot "$1" sh -c "cd /tmp/downloads && apt-get -q -o APT::Sandbox::User=root download $2") >&2
	dpkg -x "$downloads"/*.deb "$3"
	rm -r "$downloads"
}

# fill ROOT runs in the new system's directory, before apt's lists of the mirror are deleted.
fill() {
	local root=$1 kernel path
	kernel=$(chroot "$root" apt-cache depends --important linux-image-cloud-amd64 | awk '$1 == "Depends:" { print $2; exit }')
	fetch "$root" "$kernel" "$root/../kernel"
	fetch "$root" systemd-boot-efi "$root/../boot"
	fetch "$root" ignition "$root/../ignition"
	mkdir -p "$root/lib/modules"
	cp -a "$root"/../kernel/lib/modules/* "$root/lib/modules/"
	rm -rf "$root"/lib/modules/*/kernel/drivers/{gpu,infiniband,scsi,ata,md,nvme,hv,xen,media,usb,target} "$root"/lib/modules/*/kernel/drivers/net/ethernet
	chroot "$root" depmod "$(basename "$root"/lib/modules/*)"
	# Whoever has checked these files out is nobody there.
	tar -C "$here/root" --owner=0 --group=0 --mode=u=rwX,go=rX -c . | tar -C "$root" -x
	make_image "$root/usr/share/caplv/images.tar"
	# Debian's Ignition insists on labels.
	mkdir -p "$root/etc/selinux"
	printf 'SELINUX=disabled\nSELINUXTYPE=none\n' >"$root/etc/selinux/config"
	# Without an ID the first boot is known as such, and systemd does what Ignition has asked it to do at the first boot.
	rm -f "$root/etc/machine-id" "$root/var/lib/dbus/machine-id" "$root/etc/hostname"
	chroot "$root" systemctl --quiet preset-all
	for path in "${unused_units[@]}"; do ln -sf /dev/null "$root/etc/systemd/system/$path"; done
	ln -sf /lib/systemd/system/multi-user.target "$root/etc/systemd/system/default.target"
	for path in "${useless[@]}"; do rm -rf "${root:?}/$path"; done
	# Last: systemd is told that there is nothing new in /usr.
	touch "$root/etc/.updated" "$root/var/.updated"
}

# make_image FILE makes an archive with the only container image: a program that waits, for the sandboxes of Pods and for Pods. Nodes
# have no registry to take any other from.
make_image() {
	local dir digest
	dir=$(mktemp -d)
	mkdir -p "$dir/layer/bin" "$(dirname "$1")"
	cp /bin/busybox "$dir/layer/bin/"
	tar -C "$dir/layer" --sort=name --mtime=@0 --owner=0 --group=0 -cf "$dir/layer.tar" bin
	digest=$(sha256sum <"$dir/layer.tar" | cut -c1-64)
	cat >"$dir/config.json" <<-JSON
		{"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": ["sha256:$digest"]},
		 "config": {"Entrypoint": ["/bin/busybox", "sh", "-c", "trap 'exit 0' TERM; while :; do /bin/busybox sleep 3600 & wait \$!; done"]}}
	JSON
	echo '[{"Config": "config.json", "RepoTags": ["caplv.test/pause:1"], "Layers": ["layer.tar"]}]' >"$dir/manifest.json"
	tar -C "$dir" -cf "$1" manifest.json config.json layer.tar
	rm -r "$dir"
}

if [ "${1-}" = fill ]; then
	fill "$2"
	exit
fi

[ $# -eq 2 ] || { echo "usage: build.sh OUTDIR KUBELET" >&2 && exit 2; }
out=$(mkdir -p "$1" && cd "$1" && pwd) kubelet=$(realpath "$2")
readonly out kubelet
[ "$(id -u)" = 0 ] || { echo "build.sh: installing Debian's packages needs root" >&2 && exit 1; }
"$here/../packages.sh"
work=$(mktemp -d -p "${TMPDIR:-/var/tmp}")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
cd "$work"
# The hook runs this script again; mmdebstrap leaves apt's lists alone until then.
TMPDIR=$work mmdebstrap --quiet --variant=minbase --format=directory --include="$(IFS=, && echo "${packages[*]}")" \
	--customize-hook="$here/build.sh fill \"\$1\"" "$suite" root >&2
install -D -m 755 "$kubelet" root/usr/bin/kubelet
install -D -m 755 ignition/usr/lib/dracut/modules.d/30ignition/ignition root/usr/bin/ignition
make_initramfs kernel "$here/init"
make_root_fs root "$free"
make_disk kernel "$out/guest-node.qcow2" boot
