# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
#
# Prints what root finds on a host of what CAPLV needs, as lines KEY=VALUE. It changes nothing.
#
#   sh -s ACCOUNT

LC_ALL=C PATH=$PATH:/usr/sbin:/sbin
export LC_ALL PATH
say() { printf '%s=%s\n' "$1" "$2"; }
account=$1

entry=$(getent passwd "$account")
say uid "$(printf %s "$entry" | cut -d: -f3)"
home=$(printf %s "$entry" | cut -d: -f6)
say home "$home"
say shell "$(printf %s "$entry" | cut -d: -f7)"

for file in /etc/ssh/ssh_host_*_key.pub; do
	[ -f "$file" ] || continue
	say hostkey "$(cut -d' ' -f1,2 "$file")"
done
# As sshd decides for the account, with the Match blocks that are for it. It needs a directory that systemd makes for sshd itself.
sshd -T -C "user=$account,host=localhost,addr=127.0.0.1" 2>/dev/null | while read -r key value; do
	case $key in
	pubkeyauthentication | maxsessions | maxstartups | allowusers | denyusers | allowgroups | denygroups | authorizedkeysfile | forcecommand | pubkeyacceptedalgorithms)
		say "sshd" "$key $value"
		;;
	esac
done
if [ -n "$home" ]; then
	for file in "$home/.ssh/authorized_keys" "/etc/ssh/authorized_keys.d/$account"; do
		[ -f "$file" ] || continue
		say keysfile "$file $(stat -L -c '%u %a' "$file")"
		sed 's/^/authorizedkey=/' "$file" | head -n 200
	done
	# sshd refuses keys in places where others may write.
	for path in "$home" "$home/.ssh"; do
		[ ! -d "$path" ] || say keysdirectory "$path $(stat -L -c '%u %a' "$path")"
	done
fi

for file in /usr/share/qemu/firmware/*.json /etc/qemu/firmware/*.json; do
	# An empty file masks a descriptor.
	[ -s "$file" ] || continue
	say firmware "$file"
done

say memory "$(awk '$1 == "MemTotal:" { total = $2 } $1 == "MemAvailable:" { free = $2 } END { print int(total / 1024), int(free / 1024) }' /proc/meminfo)"
say cpus "$(getconf _NPROCESSORS_ONLN)"
for path in /sys/class/net/*/bridge; do
	[ -d "$path" ] || continue
	path=${path%/bridge}
	say bridge "${path##*/}"
done
if [ -f /etc/ansible/facts.d/caplv.fact ]; then
	say record "$(tr -d '\n' </etc/ansible/facts.d/caplv.fact)"
fi
say end yes
