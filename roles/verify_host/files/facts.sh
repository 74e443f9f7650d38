# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# Prints what the calling account finds on a host of what session mode needs, as lines KEY=VALUE. It changes nothing.

LC_ALL=C PATH=$PATH:/usr/sbin:/sbin
export LC_ALL PATH
say() { printf '%s=%s\n' "$1" "$2"; }
user=$(id -un) uid=$(id -u)
say account "$user"
say uid "$uid"

runtime=/run/user/$uid
if [ -d "$runtime" ]; then
	say runtime "$(stat -c '%u %a' "$runtime")"
fi

# The file is what systemd-logind itself looks at; its directory may be closed to the account.
if [ -e "/var/lib/systemd/linger/$user" ]; then
	say linger yes
else
	say linger "$(loginctl show-user "$user" --property=Linger --value 2>/dev/null </dev/null)"
fi

# The account's libvirt may name another helper than those that distributions install.
helper=$(sed -n 's/^[[:blank:]]*bridge_helper[[:blank:]]*=[[:blank:]]*"\([^"]*\)".*/\1/p' \
	"${XDG_CONFIG_HOME:-$HOME/.config}/libvirt/qemu.conf" 2>/dev/null | tail -n 1)
for path in "$helper" /usr/libexec/qemu-bridge-helper /usr/lib/qemu/qemu-bridge-helper /usr/lib/qemu-bridge-helper \
	/usr/lib64/qemu/qemu-bridge-helper /usr/lib/*-linux-*/qemu/qemu-bridge-helper; do
	if [ -n "$path" ] && [ -e "$path" ]; then
		say helper "$path"
		say helpermode "$(stat -L -c '%u %a' "$path")"
		[ ! -x "$path" ] || say helperexecutable yes
		say helpercapabilities "$(getcap "$path" 2>/dev/null)"
		break
	fi
done

# acl FILE DEPTH prints the rules of a file and of those that it includes.
acl() (
	head -c 65536 "$1" | while read -r verb rest || [ -n "$verb" ]; do
		case $verb in
		'' | '#'*) ;;
		include) if [ "$2" -lt 5 ] && [ -f "$rest" ] && [ -r "$rest" ]; then acl "$rest" "$(($2 + 1))"; fi ;;
		*) say acl "$verb $rest" ;;
		esac
	done
)
# Which file a helper reads is compiled into it. Where the helper cannot be read, it is the one that is there.
file=$(grep -a -o '/etc/[A-Za-z0-9/._-]*bridge\.conf' "$path" 2>/dev/null | head -n 1)
if [ -z "$file" ]; then
	file=/etc/qemu/bridge.conf
	if [ ! -e "$file" ] && [ -e /etc/qemu-kvm/bridge.conf ]; then file=/etc/qemu-kvm/bridge.conf; fi
fi
say aclfile "$file"
if [ -f "$file" ] && [ -r "$file" ]; then
	say aclstate readable
	acl "$file" 0
elif [ -e "$file" ]; then
	say aclstate unreadable
else
	say aclstate missing
fi

device() {
	if [ ! -c "$2" ]; then
		say "$1" missing
	elif [ -r "$2" ] && [ -w "$2" ]; then
		say "$1" usable
	else
		say "$1" denied
	fi
}
device tun /dev/net/tun
device kvm /dev/kvm

# A session daemon that was started without XDG_RUNTIME_DIR has its sockets elsewhere. It matters when it runs machines.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/libvirt
for path in "$cache/libvirtd.pid" "$cache/virtqemud.pid"; do
	{ read -r pid <"$path"; } 2>/dev/null || continue
	case $pid in '' | *[!0-9]*) continue ;; esac
	{ read -r name <"/proc/$pid/comm"; } 2>/dev/null || continue
	case $name in libvirtd | virtqemud) ;; *) continue ;; esac
	for machine in "$cache"/qemu/run/*.pid; do
		if [ -e "$machine" ]; then
			say straydaemon "$pid"
			break
		fi
	done
done

for path in /sys/class/net/*/bridge; do
	[ -d "$path" ] || continue
	path=${path%/bridge}
	say bridge "${path##*/}"
done
say end yes
