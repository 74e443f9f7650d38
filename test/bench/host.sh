#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Test hosts on this machine. Each has pid, mount, network, UTS and IPC namespaces of its own, a writable layer over a file system
# of the cache, an address on a bridge, systemd as its first process, and sshd.
#
#   host.sh up NAME [--image IMAGE] [--kvm]    brings a host up and waits until it can be used
#   host.sh stop NAME               shuts it down in order; its disk stays
#   host.sh reboot NAME             ends everything on it, and starts it again with the disk and the address it had
#   host.sh down NAME               takes it down, whatever state it is in
#   host.sh down-all                takes every host down and removes the bench
#   host.sh list                    prints NAME ADDRESS up|down for each host
#   host.sh exec NAME COMMAND…      runs a command on the host, as root
#   host.sh network NAME COMMAND…   runs a command of this machine in the host's network
#   host.sh listing NAME            prints everything that a machine could leave behind
#   host.sh {start,stop}-{sshd,libvirtd} NAME
#   host.sh rekey NAME              gives the host another SSH key, and restarts sshd
#
# IMAGE says what is on the host:
#
#   onboarded-system (default)      playbooks/onboard_host.yml has set it up, in system mode
#   onboarded-session               the same in session mode
#   one of rootfs.sh, as debian12   what somebody has installed; what to set up from there is up to the caller
#   one of rocky.sh, as rocky8      the same, and looks like Rocky Linux
#
# CAPLV_BENCH_DIR (/var/tmp/caplv-bench) holds the bench:
#
#   id_ed25519, id_ed25519.pub      the key pair that every host accepts for root
#   hosts/NAME/account_key          the private key that an onboarded host accepts for its service account
#   hosts/NAME/address              IPv4 address; sshd listens on port 22
#   hosts/NAME/fingerprint          SHA256:… of the host's SSH key
#   hosts/NAME/known_hosts          the host's SSH key as ssh wants it
#   hosts/NAME/pid                  the host's first process, as the machine counts
#   hosts/NAME/log                  what the host has said on its console
#
# CAPLV_BENCH_SUBNET (198.51.100.0/24, a documentation network) and CAPLV_BENCH_BRIDGE (caplvbr0) are shared by all benches
# of the machine. It needs root, and the packages that packages.sh names.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bench=${CAPLV_BENCH_DIR:-/var/tmp/caplv-bench}
subnet=${CAPLV_BENCH_SUBNET:-198.51.100.0/24}
bridge=${CAPLV_BENCH_BRIDGE:-caplvbr0}
readonly here bench subnet bridge

die() {
	echo "host.sh: $1" >&2
	exit 1
}

usage() {
	sed -n '/^#   host.sh/s/^#   /  /p' "${BASH_SOURCE[0]}" >&2
	exit 2
}

# use NAME sets the host that the functions below work on.
use() {
	name=$1
	[[ $name =~ ^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$ ]] || die "'$name' is not the name of a host"
	dir=$bench/hosts/$name
	# Names of interfaces are short, and the machine may have several benches.
	marker=$(printf '%s' "$dir" | sha256sum | cut -c1-64)
	link=cb${marker:0:10}
}

# init_pids prints the host's processes in the machine's own namespaces: its first process and the parent of that, which waits
# for it. They are found by the parent's argument, not by the file with the number: a number may have been used again.
init_pids() {
	local process pid
	for process in /proc/[0-9]*; do
		pid=${process#/proc/}
		if is_marked "$pid"; then
			tr ' ' '\n' <"$process/task/$pid/children"
			echo "$pid"
		fi
	done 2>/dev/null
}

# No pipe: a reader that has seen enough would end the writer, and thereby fail.
is_marked() { grep -qzxF -e "--setenv=CAPLV_BENCH=$marker" "/proc/$1/cmdline" 2>/dev/null; }

# alive checks that the file's number is still the host's first process.
alive() {
	local pid
	pid=$(cat "$dir/pid" 2>/dev/null) && [ -n "$pid" ] || return 1
	pid=$(awk '$1 == "PPid:" { print $2 }' "/proc/$pid/status" 2>/dev/null) || return 1
	is_marked "${pid:-0}"
}

enter() {
	alive || die "host $name is not up"
	nsenter --target "$(cat "$dir/pid")" --mount --pid --net --uts --ipc --root --wd -- \
		/usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$@"
}

# lock serialises what changes the network, on the whole machine. A directory that is always there leaves no file behind.
lock() { exec 9</run && flock 9; }
unlock() { exec 9<&-; }

check_machine() {
	local missing
	missing=$("$here/packages.sh" 2>&1) || die "$missing"
	case $(stat -f -c %T "$bench") in
	overlay*)
		rmdir "$bench" 2>/dev/null || :
		die "$bench is on an overlay, which cannot carry another one; set CAPLV_BENCH_DIR to a directory on a disk, or below /dev/shm"
		;;
	esac
	[[ $bench =~ ^/[A-Za-z0-9._/-]+$ ]] || die "CAPLV_BENCH_DIR has to be an absolute path of plain characters"
	[[ $subnet =~ ^[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\.0/24$ ]] || die "CAPLV_BENCH_SUBNET has to be of the form A.B.C.0/24"
}

# make_bench needs the lock: hosts that come up at once share one key pair.
make_bench() {
	mkdir -p "$bench/hosts"
	chmod 0755 "$bench"
	[ -e "$bench/id_ed25519" ] && return
	ssh-keygen -q -t ed25519 -N '' -C caplv-bench -f "$bench/id_ed25519.new"
	mv "$bench/id_ed25519.new.pub" "$bench/id_ed25519.pub"
	mv "$bench/id_ed25519.new" "$bench/id_ed25519"
}

# make_link [NUMBER] creates the host's interface and thereby takes an address, the one with this last number or the next
# that is free: the interfaces' aliases are the register.
make_link() {
	local prefix=${subnet%.0/24} number taken candidates=("$@")
	[ $# -gt 0 ] || candidates=({2..254})
	if ! ip link show "$bridge" >/dev/null 2>&1; then
		# With a fixed MAC address, the bridge keeps it when hosts come and go.
		ip link add "$bridge" address "02:ca:$(printf '%02x:%02x:%02x' ${prefix//./ }):01" type bridge
		ip addr add "$prefix.1/24" dev "$bridge"
		ip link set "$bridge" up
	fi
	taken=$(cat /sys/class/net/*/ifalias 2>/dev/null || :)
	for number in "${candidates[@]}" none; do
		grep -qx "caplv-bench .* $prefix.$number" <<<"$taken" || break
	done
	[ "$number" != none ] || die "every address of $subnet is taken"
	ip link add "$link" type veth peer name "${link}p"
	ip link set "$link" alias "caplv-bench $name $prefix.$number"
	ip link set "$link" master "$bridge" up
	echo "$prefix.$number" >"$dir/address"
	# The host that had the address before, or this one before its reboot, had another MAC address.
	ip neigh flush dev "$bridge" to "$prefix.$number"
}

# connect moves the other end into the host's network, below a bridge of its own.
connect() {
	ip link set "${link}p" netns "$dir/network"
	nsenter --net="$dir/network" ip -batch - <<-IP
		link set lo up
		link set ${link}p name eth0
		link add br0 type bridge
		link set eth0 master br0
		link set eth0 up
		link set br0 up
		addr add $(cat "$dir/address")/24 dev br0
	IP
}

# wait_for SECONDS WHAT COMMAND… waits until the command succeeds.
wait_for() {
	local deadline=$((SECONDS + $1)) what=$2
	shift 2
	until "$@"; do
		[ "$SECONDS" -lt "$deadline" ] || die "waited in vain until $what"
		sleep 0.05
	done
}

listens() { (exec 3<>"/dev/tcp/$(cat "$dir/address")/22") 2>/dev/null; }

write_fingerprint() {
	enter ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub | cut -d' ' -f2 >"$dir/fingerprint"
	enter sed "s/^/$(cat "$dir/address") /" /etc/ssh/ssh_host_ed25519_key.pub >"$dir/known_hosts"
}

# layers_of IMAGE prints the directories that the host's file system is made of.
layers_of() {
	case $1 in
	onboarded-*) "$here/onboarded.sh" "${1#onboarded-}" ;;
	rocky*) "$here/rocky.sh" "$1" ;;
	*) "$here/rootfs.sh" "$1" ;;
	esac
}

# up [--kvm] [--image IMAGE]
up() {
	local kvm='' image=onboarded-system layers key
	while [ $# -gt 0 ]; do
		case $1 in
		--kvm) kvm=$1 ;;
		--image)
			[ $# -ge 2 ] || usage
			image=$2
			shift
			;;
		*) usage ;;
		esac
		shift
	done
	layers=$(layers_of "$image")
	mkdir -p "$bench"
	check_machine
	[ "$kvm" != --kvm ] || [ -c /dev/kvm ] || die "this machine has no /dev/kvm"
	if alive; then die "host $name is up"; fi
	lock
	remove_host
	# From here on, whatever goes wrong leaves nothing behind.
	trap 'give_up $?' EXIT
	trap 'exit 1' HUP INT TERM
	make_bench
	mkdir -p "$dir"/{upper,work,root}
	[ "$kvm" != --kvm ] || : >"$dir/kvm"
	echo "$layers" >"$dir/layers"
	key=$(dirname "${layers%%:*}")/account_key
	[ ! -e "$key" ] || install -m 0600 "$key" "$dir/account_key"
	make_link
	unlock
	personalise
	boot
	write_fingerprint
}

# personalise writes what makes a host from an image another one than its siblings, and lets the bench's key in.
personalise() {
	local etc=$dir/upper/etc
	install -d -m 0755 "$etc" "$etc/ssh"
	install -d -m 0700 "$dir/upper/root" "$dir/upper/root/.ssh"
	echo "$name" >"$etc/hostname"
	# sudo and libvirtd look their own name up.
	printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$name" >"$etc/hosts"
	echo "${marker:0:32}" >"$etc/machine-id"
	ssh-keygen -q -t ed25519 -N '' -C '' -f "$etc/ssh/ssh_host_ed25519_key"
	install -m 0600 "$bench/id_ed25519.pub" "$dir/upper/root/.ssh/authorized_keys"
}

# boot starts systemd in namespaces of its own. The file system is mounted in a mount namespace, and goes with it.
boot() {
	# A node of its own: what a host does to the mode is not to reach the machine, or other hosts. systemd makes it for all.
	[ -c "$dir/tun" ] || mknod -m 666 "$dir/tun" c 10 200
	local devices=(--bind="$dir/tun:/dev/net/tun")
	[ ! -e "$dir/kvm" ] || devices+=(--bind=/dev/kvm)
	rm -f "$dir/pid"
	: >"$dir/network"
	unshare --net="$dir/network" true
	connect
	# Without machined, which this machine need not have; networks of libvirt need a writable /proc/sys/net.
	SYSTEMD_NSPAWN_API_VFS_WRITABLE=network setsid unshare --mount --propagation slave bash -euc '
		mount -t overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" caplv-bench "$2/root"
		shift 2
		exec systemd-nspawn "$@"' bash "$(cat "$dir/layers")" "$dir" \
		--quiet --register=no --keep-unit --machine="$link" --hostname="$name" --directory="$dir/root" --boot \
		--network-namespace-path="$dir/network" --resolv-conf=off --timezone=off --capability=all "${devices[@]}" --console=pipe \
		--setenv="CAPLV_BENCH=$marker" </dev/null >"$dir/log" 2>&1 9<&- &
	wait_for 30 "$name has a first process" find_first $!
	wait_for 60 "sshd of $name listens" listens
	wait_for 60 "$name has booted" booted
	[ ! -e "$dir/account_key" ] || wait_for 60 "libvirtd of $name answers" libvirtd_answers
	wait_for 60 "accounts of $name that linger have a session" sessions_last
}

# find_first PID writes down the host's first process, once it is systemd.
find_first() {
	local child
	kill -0 "$1" 2>/dev/null || die "starting $name failed: $(tail -5 "$dir/log")"
	child=$(cat "/proc/$1/task/$1/children" 2>/dev/null) && child=${child%% *} && [ -n "$child" ] || return 1
	[ "$(cat "/proc/$child/comm" 2>/dev/null)" = systemd ] || return 1
	echo "$child" >"$dir/pid"
}

# booted waits for the end of the boot, whether or not each unit could be started.
booted() {
	local state
	state=$(enter systemctl is-system-running 2>/dev/null) || :
	case $state in running | degraded) ;; *) return 1 ;; esac
}

# sessions_last checks what systemd-logind does for accounts that linger, which the end of the boot does not wait for.
sessions_last() {
	# shellcheck disable=SC2016 # The host's shell expands it.
	enter sh -c '
		for account in /var/lib/systemd/linger/*; do
			[ ! -e "$account" ] || systemctl --quiet is-active "user@$(id -u "${account##*/}").service" || exit 1
		done'
}

# reboot keeps the host's disk, and nothing else. As after a power failure, nobody had the time to clean up.
reboot() {
	local address
	alive || die "host $name is not up"
	address=$(cat "$dir/address")
	lock
	stop_host
	make_link "${address##*.}"
	unlock
	boot
}

# give_up STATUS takes down what a failed up has left.
give_up() {
	trap - EXIT
	[ "$1" = 0 ] || down
	exit "$1"
}

# ended PID checks that a process is gone, but for the entry that its parent has yet to read. A namespace's first process
# gets there when all others of the namespace are gone.
ended() {
	local state
	state=$(sed -n 's/^State:[[:blank:]]*//p' "/proc/$1/status" 2>/dev/null) || return 0
	[ -z "$state" ] || [ "${state:0:1}" = Z ]
}

# power_off lets the host write what it has to say to its disk.
power_off() {
	alive || die "host $name is not up"
	# The connection to systemd may end before its answer.
	enter systemctl poweroff || :
	wait_for 120 "$name has shut down" is_off
	lock
	stop_host
	unlock
}

is_off() { [ -z "$(init_pids)" ]; }

# stop_host needs the lock. The death of the first process ends everything in the host, and its mounts.
stop_host() {
	local pids pid
	pids=$(init_pids)
	for pid in $pids; do kill -9 "$pid" 2>/dev/null || :; done
	for pid in $pids; do wait_for 60 "process $pid of $name is gone" ended "$pid"; done
	# It also goes by itself, with the network namespace of its other end.
	ip link del "$link" 2>/dev/null || :
	umount "$dir/network" 2>/dev/null || :
	wait_for 30 "interface $link is gone" test ! -e "/sys/class/net/$link"
}

# remove_host needs the lock.
remove_host() {
	stop_host
	rm -rf --one-file-system "$dir"
}

down() {
	lock
	remove_host
	# The bridge goes with its last host, of whichever bench.
	if [ -d "/sys/class/net/$bridge/brif" ] && [ -z "$(ls -A "/sys/class/net/$bridge/brif")" ]; then
		ip link del "$bridge"
	fi
	unlock
}

down_all() {
	local path
	for path in "$bench"/hosts/*/; do
		[ -d "$path" ] || continue
		use "$(basename "$path")"
		down
	done
	rm -rf --one-file-system "$bench"/id_ed25519{,.pub,.new,.new.pub}
	rmdir "$bench/hosts" "$bench" 2>/dev/null || :
}

list() {
	local path state
	for path in "$bench"/hosts/*/; do
		[ -d "$path" ] || continue
		use "$(basename "$path")"
		state=down
		if alive; then state=up; fi
		echo "$name $(cat "$dir/address" 2>/dev/null || echo -) $state"
	done
}

# stop_sshd also ends the connections, which systemd counts among the sessions of their users.
stop_sshd() {
	enter systemctl --quiet stop ssh.socket ssh.service
	# shellcheck disable=SC2016 # The host's shell expands it.
	enter bash -c '
		signal=TERM
		for try in {1..200}; do
			pkill "-$signal" -x "sshd(-.*)?" || exit 0
			[ "$try" -lt 100 ] || signal=KILL
			sleep 0.1
		done
		exit 1' || die "sshd on $name does not end"
}

start_sshd() {
	enter systemctl start ssh.service
	wait_for 30 "sshd of $name listens" listens
}

readonly libvirtd=(libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket libvirtd.service)

libvirtd_answers() { enter virsh -q -c qemu:///system list >/dev/null 2>&1; }

start_libvirtd() {
	enter systemctl start "${libvirtd[@]}"
	wait_for 60 "libvirtd of $name answers" libvirtd_answers
}

rekey() {
	stop_sshd
	enter sh -c 'rm -f /etc/ssh/ssh_host_*; ssh-keygen -q -t ed25519 -N "" -C "" -f /etc/ssh/ssh_host_ed25519_key'
	write_fingerprint
	start_sshd
}

[ "$(id -u)" = 0 ] || die "test hosts need root: namespaces, mounts, daemons"
case ${1-} in
list) list ;;
down-all) down_all ;;
up | stop | down | reboot | exec | network | listing | rekey | start-sshd | stop-sshd | start-libvirtd | stop-libvirtd)
	[ $# -ge 2 ] || usage
	use "$2"
	case $1 in
	up) up "${@:3}" ;;
	stop) power_off ;;
	down) down ;;
	reboot) reboot ;;
	exec) enter "${@:3}" ;;
	network)
		alive || die "host $name is not up"
		nsenter --target "$(cat "$dir/pid")" --net -- "${@:3}"
		;;
	listing) enter bash -s <"$here/host-listing.sh" ;;
	rekey) rekey ;;
	start-sshd) start_sshd ;;
	stop-sshd) stop_sshd ;;
	start-libvirtd) start_libvirtd ;;
	stop-libvirtd) enter systemctl --quiet stop "${libvirtd[@]}" ;;
	esac
	;;
*) usage ;;
esac
