#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Prepares the machine on which it runs as a test host: account, key, helper, sudo rule and /run/caplv. It needs root,
# libvirt's group and sudo; a second run changes nothing.
#
#   prepare-test-host.sh --user NAME --authorized-key FILE
#
# FILE holds public keys, one a line. Hosts that matter are prepared by the roles; this is for those that tests throw away.
set -euo pipefail
umask 022

helper_source=$(dirname "${BASH_SOURCE[0]}")/../roles/host_helper/files/caplv-hostctl
readonly helper=/usr/libexec/caplv/caplv-hostctl

die() {
	echo "prepare-test-host.sh: $1" >&2
	exit 1
}

usage() {
	echo "usage: prepare-test-host.sh --user NAME --authorized-key FILE" >&2
	exit 2
}

# put FILE OWNER MODE writes standard input to FILE, in one step and only when something differs. With a fourth argument,
# that command has to accept the new file first.
put() {
	local file=$1 owner=$2 mode=$3 check=${4-} new
	# sudo and systemd ignore the name of the temporary file, and rename needs it on the same file system.
	new=$(mktemp "$(dirname "$file")/.caplv.XXXXXX")
	cat >"$new"
	chown "$owner" "$new"
	chmod "$mode" "$new"
	if [ -n "$check" ] && ! $check "$new" >/dev/null; then
		rm -f "$new"
		die "$check does not accept the new $file"
	fi
	if cmp -s "$new" "$file" && [ "$(stat -c '%u:%g %a' "$new")" = "$(stat -c '%u:%g %a' "$file")" ]; then
		rm -f "$new"
		return
	fi
	mv -f -T "$new" "$file"
	if command -v restorecon >/dev/null; then restorecon "$file"; fi
	echo "wrote $file"
}

prepare_account() {
	getent group libvirt >/dev/null || die "there is no group libvirt; install libvirt first"
	if ! id "$user" >/dev/null 2>&1; then
		useradd --create-home --shell /bin/bash "$user"
		echo "created account $user"
	fi
	if ! id -nG "$user" | tr ' ' '\n' | grep -qx libvirt; then
		usermod --append --groups libvirt "$user"
		echo "added $user to group libvirt"
	fi
	# With "!", sshd takes the account for locked and refuses its keys unless PAM decides; "*" is no password either.
	if [ "$(getent shadow "$user" | cut -d: -f2)" != '*' ]; then
		usermod --password '*' "$user"
	fi
}

# prepare_key allows the keys to run commands, and nothing else: no terminal, no forwarding.
prepare_key() {
	local home group keys
	keys=$(sed -nE 's/^((ssh|ecdsa|sk)-[^ ]+ .*)$/restrict \1/p' "$key_file")
	[ -n "$keys" ] || die "$key_file holds no public key"
	home=$(getent passwd "$user" | cut -d: -f6)
	group=$(id -gn "$user")
	install -d -o "$user" -g "$group" -m 0700 "$home/.ssh"
	put "$home/.ssh/authorized_keys" "$user:$group" 0600 <<<"$keys"
}

prepare_helper() {
	command -v visudo >/dev/null || die "there is no visudo; install sudo first"
	install -d -o root -g root -m 0755 "$(dirname "$helper")"
	put "$helper" root:root 0755 "bash -n" <"$helper_source"
	# The empty string at the end allows no arguments at all.
	echo "$user ALL=(root) NOPASSWD: $helper \"\"" | put /etc/sudoers.d/caplv root:root 0440 "visudo -cf"
	install -d -m 0755 /etc/tmpfiles.d
	echo 'd /run/caplv 0711 root root -' | put /etc/tmpfiles.d/caplv.conf root:root 0644
	install -d -o root -g root -m 0711 /run/caplv
}

user='' key_file=''
while [ $# -gt 0 ]; do
	[ $# -ge 2 ] || usage
	case $1 in
	--user) user=$2 ;;
	--authorized-key) key_file=$2 ;;
	*) usage ;;
	esac
	shift 2
done
[ -n "$user" ] && [ -n "$key_file" ] || usage
# The name becomes part of a sudo rule.
[[ $user =~ ^[a-z_][a-z0-9_-]{0,31}$ ]] || die "'$user' is not the name of an account"
[ -r "$key_file" ] || die "$key_file cannot be read"
[ "$(id -u)" = 0 ] || die "only root can do this"
prepare_account
prepare_key
prepare_helper
