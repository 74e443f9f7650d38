#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs on a test host, as root, and gives the account's session daemon a storage pool "default". What else session mode
# needs is there on every test host. A second run changes nothing.
set -euo pipefail

readonly account=caplv
uid=$(id -u "$account")
home=$(getent passwd "$account" | cut -d: -f6)
pool=$home/.local/share/libvirt/images

as_account() { setpriv --reuid "$account" --regid "$account" --init-groups --reset-env env XDG_RUNTIME_DIR="/run/user/$uid" "$@"; }
virsh() { as_account virsh -q -c qemu:///session "$@"; }

as_account mkdir -p "$pool"
if ! virsh pool-info default >/dev/null 2>&1; then
	virsh pool-define-as default dir --target "$pool"
fi
virsh pool-autostart default
if [ "$(LC_ALL=C virsh pool-info default | awk '$1 == "State:" { print $2 }')" != running ]; then
	virsh pool-start default
fi
