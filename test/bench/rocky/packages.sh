#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs inside of the file system that rocky.sh makes: turns Debian's packages in /srv/packages that are not installed into RPM
# packages with the names, paths, accounts and units of RHEL, and into a repository for dnf in their place.
#
#   packages.sh DIRECTORY    DIRECTORY: where this script and packages.spec are
set -euo pipefail

here=$1
work=/var/tmp/rocky
readonly here work

# Which of Debian's packages each RPM package is made of. What is left is for bench-libraries, which all of them require.
sources() {
	cat <<-LIST
		libvirt-daemon libvirt-daemon libvirt-daemon-system libvirt-daemon-system-systemd libvirt-daemon-config-nwfilter
		libvirt-daemon-driver-qemu libvirt-daemon-driver-qemu
		libvirt-client libvirt-clients
		qemu-kvm qemu-system-x86
		qemu-kvm-common qemu-system-common qemu-system-data seabios ipxe-qemu
		qemu-img qemu-utils
		edk2-ovmf ovmf
		swtpm swtpm
		swtpm-tools swtpm-tools
		polkit polkitd
		dnsmasq dnsmasq-base
		policycoreutils-python-utils policycoreutils-python-utils python3-sepolicy python3-semanage python3-selinux python3-setools
	LIST
}

unpack() {
	local target=$1 name deb
	shift
	mkdir -p "$work/trees/$target"
	for name; do
		for deb in "/srv/packages/${name}"_*.deb; do
			[ -e "$deb" ] || continue
			dpkg-deb --extract "$deb" "$work/trees/$target"
			rm "$deb"
		done
	done
	normalise "$work/trees/$target"
}

# normalise leaves out what no host needs, and what belongs to Debian's own tools; and has everything below /usr, as RHEL has.
normalise() {
	local part
	cd "$1"
	rm -rf usr/share/{doc,man,locale,lintian,bug,info,apport,augeas,systemtap,reportbug} etc/{apparmor.d,init.d,apt} usr/lib/{firewalld,sysusers.d}
	for part in bin sbin lib lib64; do
		[ -d "$part" ] || continue
		mkdir -p "usr/$part"
		cp -a "$part/." "usr/$part/"
		rm -rf "$part"
	done
	if [ -d etc/default ]; then mv etc/default etc/sysconfig; fi
	if [ -d usr/lib/systemd ]; then find usr/lib/systemd -type f -exec sed -i 's,/etc/default/,/etc/sysconfig/,' {} +; fi
	cd - >/dev/null
}

qemu() {
	cd "$work/trees/qemu-kvm"
	mkdir -p usr/libexec
	mv usr/bin/qemu-system-x86_64 usr/libexec/qemu-kvm
	rm -f usr/bin/qemu-system-* usr/bin/kvm
	cd "$work/trees/qemu-kvm-common"
	mkdir -p usr/libexec etc/qemu-kvm
	mv usr/lib/qemu/qemu-bridge-helper usr/libexec/
	rm -rf etc/qemu-ifup etc/qemu-ifdown etc/qemu
	echo 'allow virbr0' >etc/qemu-kvm/bridge.conf
	# Longer than Debian's: it takes the place of the message for a bridge that the file does not allow.
	python3 "$here/compiled.py" usr/libexec/qemu-bridge-helper /etc/qemu/bridge.conf /etc/qemu-kvm/bridge.conf 'access denied by acl file\n'
	cd - >/dev/null
}

firmware() {
	cd "$work/trees/edk2-ovmf/usr/share"
	mkdir -p edk2/ovmf
	mv OVMF/OVMF_CODE_4M.fd edk2/ovmf/OVMF_CODE.fd
	mv OVMF/OVMF_CODE_4M.secboot.fd edk2/ovmf/OVMF_CODE.secboot.fd
	mv OVMF/OVMF_VARS_4M.fd edk2/ovmf/OVMF_VARS.fd
	mv OVMF/OVMF_VARS_4M.ms.fd edk2/ovmf/OVMF_VARS.secboot.fd
	rm -rf OVMF ovmf qemu/OVMF.fd
	mkdir OVMF
	ln -s ../edk2/ovmf/OVMF_CODE.secboot.fd ../edk2/ovmf/OVMF_VARS.fd OVMF/
	sed -i -e 's,/usr/share/OVMF/OVMF_CODE_4M\.\(secboot\|ms\)\.fd,/usr/share/edk2/ovmf/OVMF_CODE.secboot.fd,' \
		-e 's,/usr/share/OVMF/OVMF_CODE_4M\.fd,/usr/share/edk2/ovmf/OVMF_CODE.fd,' \
		-e 's,/usr/share/OVMF/OVMF_VARS_4M\.ms\.fd,/usr/share/edk2/ovmf/OVMF_VARS.secboot.fd,' \
		-e 's,/usr/share/OVMF/OVMF_VARS_4M\.fd,/usr/share/edk2/ovmf/OVMF_VARS.fd,' qemu/firmware/*.json
	cd - >/dev/null
}

libvirt() {
	local driver
	cd "$work/trees/libvirt-daemon"
	mkdir -p ../libvirt-daemon-driver-qemu/etc/libvirt
	mv etc/libvirt/qemu.conf ../libvirt-daemon-driver-qemu/etc/libvirt/
	mv usr/share/polkit-1/rules.d/60-libvirt.rules usr/share/polkit-1/rules.d/50-libvirt.rules
	rm -rf var etc/libvirt/{lxc,libxl}*.conf
	cd ../libvirt-daemon-driver-qemu
	driver=usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so
	python3 "$here/compiled.py" $driver libvirt-qemu qemu
	python3 "$here/compiled.py" $driver /usr/lib/qemu/qemu-bridge-helper /usr/libexec/qemu-bridge-helper
	# For hosts without cgroups, on one board, as rootfs.sh has it.
	printf 'cgroup_controllers = [ ]\nsecurity_driver = "none"\n' >>etc/libvirt/qemu.conf
	cd ../libvirt-daemon
	echo 'host_uuid_source = "machine-id"' >>etc/libvirt/libvirtd.conf
	cd - >/dev/null
}

# list NAME prints what %files wants of a tree. Directories belong to nobody, but for those that the spec itself names.
list() {
	(cd "$work/trees/$1" && find . \( -type f -o -type l \) -printf '/%P\n') |
		sed -e 's,^/etc/.*,%config(noreplace) &,' -e 's,^/usr/libexec/qemu-bridge-helper$,%attr(4755\,root\,root) &,' >"$work/$1.list"
}

rm -rf "$work"
mkdir -p "$work/trees"
# What is installed is no part of it.
while read -r name; do rm -f "/srv/packages/${name%:*}"_*.deb; done < <(dpkg-query --show --showformat '${Package}\n')
while read -r target names; do
	# shellcheck disable=SC2086 # Words, on purpose.
	unpack "$target" $names
done < <(sources)
rest=()
for deb in /srv/packages/*.deb; do
	name=${deb##*/}
	# RHEL has this service elsewhere, and no host of the bench needs it.
	case $name in systemd-container_*) rm "$deb" ;; *) rest+=("${name%%_*}") ;; esac
done
unpack bench-libraries "${rest[@]}"
qemu
firmware
libvirt
for tree in "$work"/trees/*; do list "${tree##*/}"; done
rm -rf /srv/packages
mkdir /srv/packages
rpmbuild --quiet -bb --define "_topdir $work/build" --define "_rpmdir /srv/packages" --define "trees $work" "$here/packages.spec"
createrepo_c --quiet /srv/packages
rm -rf "$work"
