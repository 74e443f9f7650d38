#!/bin/bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Says whether sshd's AllowUsers, DenyUsers, AllowGroups and DenyGroups let an account in:
#
#   sshd-access.sh USER GROUP…
#
# Exit status 0 is yes, 3 is no, with the reason on standard error. Where a rule also names hosts, it is taken for one that lets
# the operator's host in.
set -f -u
export LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin

user=$1
shift

refuse() {
	echo "sshd on this host does not let account $user in: $1. Change that in /etc/ssh/sshd_config or a file that it includes, or choose another caplv_user" >&2
	exit 3
}

# like NAME PATTERN compares as sshd does: only * and ? are special.
like() {
	local pattern=${2//\\/\\\\}
	pattern=${pattern//[/\\[}
	# shellcheck disable=SC2053 # The right side is a pattern, on purpose.
	[[ $1 == $pattern ]]
}

# With all of them, every version of OpenSSH accepts -C; with an address that no rule for networks is likely to name.
if ! config=$(sshd -T -C "user=$user,host=localhost,addr=127.0.0.1,laddr=127.0.0.1,lport=22" 2>&1); then
	echo "sshd does not accept its own configuration, and would not after any change: $config" >&2
	exit 1
fi

allow_users='' allow_groups='' user_allowed='' group_allowed=''
while read -r keyword patterns; do
	for pattern in $patterns; do
		case $keyword in
		denyusers)
			# A rule for hosts can only be judged where it means all of them.
			case $pattern in *@\*) pattern=${pattern%@\*} ;; *@*) continue ;; esac
			! like "$user" "$pattern" || refuse "DenyUsers has $pattern"
			;;
		allowusers)
			allow_users+=" $pattern"
			! like "$user" "${pattern%%@*}" || user_allowed=yes
			;;
		denygroups | allowgroups)
			[ "$keyword" = denygroups ] || allow_groups+=" $pattern"
			for group; do
				case $keyword in
				denygroups) ! like "$group" "$pattern" || refuse "DenyGroups has $pattern" ;;
				allowgroups) ! like "$group" "$pattern" || group_allowed=yes ;;
				esac
			done
			;;
		esac
	done
done <<<"$config"
if [ -n "$allow_users" ] && [ -z "$user_allowed" ]; then refuse "AllowUsers has only$allow_users"; fi
if [ -n "$allow_groups" ] && [ -z "$group_allowed" ]; then refuse "AllowGroups has only$allow_groups"; fi
exit 0
