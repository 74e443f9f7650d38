#!/bin/sh
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Logs in to an account as the operator does, with its key and against host keys that are known already. It leaves nothing behind.
#
#   login.sh ACCOUNT ADDRESS PORT PRIVATE-KEY <HOST-KEYS
#
# HOST-KEYS are the host's own public keys, "TYPE BASE64" each.
set -eu
account=$1 address=$2 port=$3 key=$4
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
trap 'exit 1' HUP INT TERM
name=$address
[ "$port" = 22 ] || name="[$address]:$port"
while read -r host_key || [ -n "$host_key" ]; do
	[ -z "$host_key" ] || echo "$name $host_key"
done >"$directory/known_hosts"
ssh -F none -i "$key" -p "$port" -l "$account" -o BatchMode=yes -o IdentitiesOnly=yes -o IdentityAgent=none -o StrictHostKeyChecking=yes \
	-o UserKnownHostsFile="$directory/known_hosts" -o GlobalKnownHostsFile=/dev/null -o PreferredAuthentications=publickey \
	-o ControlPath=none -o ConnectTimeout=20 -o LogLevel=ERROR -- "$address" true </dev/null
