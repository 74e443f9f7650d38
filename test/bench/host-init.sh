#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# The first process of a test host; host.sh starts it in namespaces of its own.
#
#   host-init.sh outside DIR NAME MARKER HOW     mounts the host's file system in DIR/root and moves into it
#   host-init.sh inside NAME MARKER yes|no HOW   sets the host up, starts its daemons, and reaps; yes: with /dev/kvm
#
# HOW is install, or boot for a host whose file system was set up before.
# MARKER identifies the host's processes on the machine, and makes its IDs.
set -euo pipefail

readonly ready='caplv-bench: ready'

outside() {
	local dir=$1 name=$2 marker=$3 how=$4 kvm=no pid repository
	repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
	[ ! -e "$dir/kvm" ] || kvm=yes
	# This /proc is still the machine's, and has the number by which the machine knows this process.
	read -r pid _ </proc/self/stat
	echo "$pid" >"$dir/pid.new"
	mv "$dir/pid.new" "$dir/pid"

	mount -t overlay -o "lowerdir=/,upperdir=$dir/upper,workdir=$dir/work" "caplv-bench-$name" "$dir/root"
	cd "$dir/root"
	mkdir -p .old caplv-bench/test/bench caplv-bench/hack caplv-bench/roles/host_helper/files
	cp "$dir/../../id_ed25519.pub" caplv-bench/
	local file
	for file in test/bench/host-init.sh hack/prepare-test-host.sh roles/host_helper/files/caplv-hostctl; do
		cp "$repository/$file" "caplv-bench/$file"
	done
	if [ "$how" = install ] && [ -d "$dir/../../capabilities" ]; then
		mkdir -p var/cache/libvirt/qemu
		cp -a "$dir/../../capabilities" var/cache/libvirt/qemu/
	fi
	# Not chroot alone: libvirtd enters mount namespaces again, and would find itself in the machine's root.
	pivot_root . .old
	exec chroot . /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
		bash /caplv-bench/test/bench/host-init.sh inside "$name" "$marker" "$kvm" "$how"
}

make_devices() {
	local kvm=$1 device
	mount -t tmpfs -o mode=755 dev /dev
	for device in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
		local name major minor
		IFS=: read -r name major minor <<<"$device"
		mknod -m 666 "/dev/$name" c "$major" "$minor"
	done
	mkdir /dev/pts /dev/shm /dev/net
	mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts /dev/pts
	mount -t tmpfs shm /dev/shm
	ln -s pts/ptmx /dev/ptmx
	ln -s /proc/self/fd /dev/fd
	ln -s fd/0 /dev/stdin
	ln -s fd/1 /dev/stdout
	ln -s fd/2 /dev/stderr
	mknod -m 666 /dev/net/tun c 10 200
	if [ "$kvm" = yes ]; then mknod -m 666 /dev/kvm c 10 232; fi
}

make_mounts() {
	mount -t proc proc /proc
	umount -l /.old
	rmdir /.old
	# As on a machine that systemd has booted. With private mounts, a tmpfs that a virtual machine uses could be unmounted.
	mount --make-rshared /
	mount -t sysfs sys /sys
	mount -t tmpfs -o mode=755 tmpfs /run
	mount -t tmpfs -o mode=1777 tmpfs /tmp
	# It also hides the bench's own directory in its usual place.
	mount -t tmpfs -o mode=1777 tmpfs /var/tmp
	mkdir -p /run/lock /run/sshd /run/libvirt
}

# set_identity makes the host another one than the machine, and than its siblings.
set_identity() {
	local name=$1 marker=$2
	echo "$name" >/etc/hostname
	# sudo and libvirtd look their own name up.
	echo "127.0.1.1 $name" >>/etc/hosts
	rm -f /etc/machine-id
	echo "${marker:0:32}" >/etc/machine-id
}

# empty_libvirt forgets everything that the machine's own libvirt knows.
empty_libvirt() {
	local marker=$1
	rm -rf /var/lib/libvirt /etc/libvirt/qemu /etc/libvirt/storage /etc/libvirt/secrets /var/log/libvirt
	mkdir -p /var/lib/libvirt/images /etc/libvirt/qemu/networks /etc/libvirt/storage /var/log/libvirt/qemu
	cat >/etc/libvirt/libvirtd.conf <<-CONF
		unix_sock_group = "libvirt"
		unix_sock_ro_perms = "0777"
		unix_sock_rw_perms = "0770"
		auth_unix_ro = "none"
		auth_unix_rw = "none"
		host_uuid = "${marker:0:8}-${marker:8:4}-4${marker:12:3}-8${marker:15:3}-${marker:18:12}"
	CONF
	# The host has no cgroups, and the machine's AppArmor or SELinux knows nothing of its paths.
	cat >>/etc/libvirt/qemu.conf <<-CONF
		cgroup_controllers = [ ]
		security_driver = "none"
	CONF
	# What lets QEMU attach to a bridge in session mode.
	mkdir -p /etc/qemu
	echo 'allow br0' >/etc/qemu/bridge.conf
	local helper
	for helper in /usr/lib/qemu/qemu-bridge-helper /usr/libexec/qemu-bridge-helper; do
		if [ -e "$helper" ]; then chmod u+s "$helper"; fi
	done
}

# prepare_session does what logind does for an account that lingers.
prepare_session() {
	local account=$1
	mkdir -p /run/user /var/lib/systemd/linger
	install -d -o "$account" -g "$account" -m 0700 "/run/user/$(id -u "$account")"
	: >"/var/lib/systemd/linger/$account"
}

prepare_sshd() {
	rm -f /etc/ssh/ssh_host_*
	ssh-keygen -q -t ed25519 -N '' -C '' -f /etc/ssh/ssh_host_ed25519_key
	# Limits are OpenSSH's own: what fails against them fails on real hosts.
	cat >/etc/ssh/sshd_config <<-CONF
		HostKey /etc/ssh/ssh_host_ed25519_key
		PidFile /run/sshd.pid
		PasswordAuthentication no
		KbdInteractiveAuthentication no
		PermitRootLogin no
		UsePAM no
		LogLevel VERBOSE
	CONF
}

wait_for_libvirt() {
	local tries=0
	until virsh -q -c qemu:///system list >/dev/null 2>/tmp/virsh; do
		tries=$((tries + 1))
		if [ "$tries" -gt 300 ]; then
			cat /tmp/virsh >&2
			exit 1
		fi
		sleep 0.2
	done
	rm /tmp/virsh
}

define_resources() {
	local commands
	cat >/tmp/default-pool.xml <<-XML
		<pool type='dir'><name>default</name><target><path>/var/lib/libvirt/images</path></target></pool>
	XML
	# Without address and name service, it needs no dnsmasq.
	cat >/tmp/default-network.xml <<-XML
		<network><name>default</name><bridge name='virbr0' stp='off' delay='0'/><dns enable='no'/></network>
	XML
	for commands in "pool-define /tmp/default-pool.xml" "pool-start default" "pool-autostart default" \
		"net-define /tmp/default-network.xml" "net-start default" "net-autostart default"; do
		# shellcheck disable=SC2086 # Words, on purpose.
		virsh -q -c qemu:///system $commands >/dev/null
	done
	rm /tmp/default-pool.xml /tmp/default-network.xml
}

# install_host sets the file system up.
install_host() {
	local name=$1 marker=$2
	set_identity "$name" "$marker"
	empty_libvirt "$marker"
	prepare_sshd
	bash /caplv-bench/hack/prepare-test-host.sh --user caplv --authorized-key /caplv-bench/id_ed25519.pub
}

inside() {
	local name=$1 marker=$2 kvm=$3 how=$4
	make_mounts
	make_devices "$kvm"
	hostname "$name"
	if [ "$how" = install ]; then
		install_host "$name" "$marker"
	else
		# /run is empty, and systemd-tmpfiles would do this.
		install -d -o root -g root -m 0711 /run/caplv
	fi
	prepare_session caplv
	rm -rf /caplv-bench
	virtlogd -d
	libvirtd -d
	wait_for_libvirt
	[ "$how" != install ] || define_resources
	/usr/sbin/sshd -E /var/log/sshd.log
	echo "$ready"
	# The end of this process is the end of the host. bash reaps while it waits.
	trap 'exit 0' TERM INT
	while :; do
		sleep 3600 &
		wait $! || :
	done
}

case ${1-} in
outside) outside "${@:2}" ;;
inside) inside "${@:2}" ;;
*)
	echo "host-init.sh: host.sh starts this" >&2
	exit 2
	;;
esac
