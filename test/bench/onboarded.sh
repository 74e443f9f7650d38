#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Sets a bare test host up with playbooks/onboard_host.yml, once, and keeps in the cache what that has written. Prints the
# directories that a host of this kind is made of, as rootfs.sh does:
#
#   onboarded.sh system|session [IMAGE]    IMAGE: one of rootfs.sh (debian12-libvirt)
#
# CAPLV_CACHE (~/.cache/caplv) holds onboarded/IMAGE-MODE-KEY, where KEY stands for everything that the result comes from:
#
#   root           what the playbook and the bench have written, a layer over IMAGE
#   account_key    the private key that the service account accepts
#   log            what the playbook printed
#
# It needs root, and Ansible, which `make ansible-deps` installs.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
cache=${CAPLV_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/caplv}/onboarded
ansible=$repository/.venv/bin/ansible-playbook
readonly here repository cache ansible

# The host while it is set up.
readonly name=onboarding

die() {
	echo "onboarded.sh: $1" >&2
	exit 1
}

# key_of LAYERS stands for the contents of IMAGE, and for each file of the repository that takes part.
key_of() {
	(
		cd "$repository"
		echo "$1"
		find roles playbooks plugins meta galaxy.yml ansible.cfg requirements.txt test/bench/host.sh test/bench/onboarded.sh \
			-type f ! -name '*.md' ! -name '*.pyc' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
	) | sha256sum | cut -c1-12
}

# write_inventory MODE DIR says how the host is reached, and how it is to be set up. Its key is known, and verified.
write_inventory() {
	local host=$2/bench/hosts/$name
	cat >"$2/inventory.yml" <<-YAML
		all:
		  hosts:
		    $name:
		      ansible_host: $(cat "$host/address")
		      ansible_user: root
		      ansible_ssh_private_key_file: $2/bench/id_ed25519
		      ansible_ssh_common_args: -o UserKnownHostsFile=$host/known_hosts -o StrictHostKeyChecking=yes -o IdentitiesOnly=yes
		      ansible_python_interpreter: /usr/bin/python3
		      caplv_mode: $1
		      # There is no KVM on most machines that tests run on.
		      caplv_virt_type: qemu
		      caplv_bridges: [br0]
		      caplv_authorized_keys: ["$(cat "$2/account_key.pub")"]
		      caplv_private_key_file: $2/account_key
		      caplv_objects_dir: $2/objects
	YAML
}

# onboard DIR runs the playbook. Its SSH connections end with it.
onboard() {
	local sockets status=0 socket
	# Paths of sockets have to be short.
	sockets=$(mktemp -d /tmp/caplv-onboarded.XXXXXX)
	(
		cd "$1"
		ANSIBLE_CONFIG=$repository/ansible.cfg ANSIBLE_COLLECTIONS_PATH=$repository/collections ANSIBLE_LOCAL_TEMP=$1/tmp \
			ANSIBLE_SSH_CONTROL_PATH_DIR=$sockets ANSIBLE_NOCOLOR=1 PYTHONDONTWRITEBYTECODE=1 \
			"$ansible" -i inventory.yml "$repository/playbooks/onboard_host.yml"
	) >"$1/log" 2>&1 </dev/null || status=$?
	for socket in "$sockets"/*; do
		[ ! -S "$socket" ] || ssh -o ControlPath="$socket" -O exit "$name" 2>/dev/null || :
	done
	rm -rf "$sockets"
	if [ "$status" != 0 ]; then
		tail -40 "$1/log" >&2
		die "playbooks/onboard_host.yml failed; see $1/log"
	fi
}

# define_network gives the host what is not a matter of the roles: the network that Debian's package defines, but without address
# and name service, so that it needs no dnsmasq.
define_network() {
	"$here/host.sh" exec "$name" sh -euc '
		virsh="virsh -q -c qemu:///system"
		if $virsh net-list --name | grep -qx default; then $virsh net-destroy default; fi
		if $virsh net-list --all --name | grep -qx default; then $virsh net-undefine default; fi
		echo "<network><name>default</name><bridge name=\"virbr0\" stp=\"off\" delay=\"0\"/><dns enable=\"no\"/></network>" |
			$virsh net-define /dev/stdin
		$virsh net-start default
		$virsh net-autostart default' >&2
}

# forget ROOT removes what makes a host another one than its siblings: host.sh makes it for each. What the host noted down while it
# was set up is of no interest to them.
forget() {
	rm -rf "$1"/etc/{machine-id,hostname,hosts} "$1"/etc/ssh/ssh_host_* "$1/root/.ssh/authorized_keys" "$1/root/.ansible" \
		"$1/var/lib/systemd/random-seed" "$1"/var/log/journal/* "$1"/tmp/* "$1"/var/tmp/*
}

# build MODE IMAGE TARGET
build() {
	local work=$3.new
	export CAPLV_BENCH_DIR=$work/bench
	# Of one that was killed.
	[ ! -d "$CAPLV_BENCH_DIR" ] || "$here/host.sh" down-all
	rm -rf "$work"
	mkdir -p "$work"
	echo "onboarded.sh: setting a host up in $1 mode with playbooks/onboard_host.yml; this takes a minute or two" >&2
	ssh-keygen -q -t ed25519 -N '' -C caplv -f "$work/account_key"
	trap '"$here/host.sh" down-all' EXIT
	trap 'exit 1' HUP INT TERM
	"$here/host.sh" up "$name" --image "$2"
	write_inventory "$1" "$work"
	onboard "$work"
	define_network
	"$here/host.sh" stop "$name"
	forget "$CAPLV_BENCH_DIR/hosts/$name/upper"
	mv "$CAPLV_BENCH_DIR/hosts/$name/upper" "$work/root"
	"$here/host.sh" down-all
	trap - EXIT
	rm -rf "$work/objects" "$work/tmp" "$work/inventory.yml"
	mv -T "$work" "$3"
}

mode=${1-} image=${2-debian12-libvirt}
case $mode in system | session) ;; *) die "usage: onboarded.sh system|session [IMAGE]" ;; esac
[ "$(id -u)" = 0 ] || die "setting a test host up needs root"
layers=$("$here/rootfs.sh" "$image")
target=$cache/$image-$mode-$(key_of "$layers")
mkdir -p "$cache"
chmod 0700 "$cache"
if [ ! -d "$target" ]; then
	[ -x "$ansible" ] || die "there is no $ansible; run: make ansible-deps"
	(
		flock 9
		if [ -d "$target" ]; then exit; fi
		build "$mode" "$image" "$target" 9>&-
	) 9>"$cache/$image-$mode.lock"
fi
echo "$target/root:$layers"
