#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds the image of the guest that becomes a node, unless the cache holds it, and prints its path. Its directory is named after
# the digest of everything that it is made of here; the kubelet's path has that of its own. KUBEBUILDER_ASSETS decides which kubelet
# that is, if it has one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

source=test/bench/node
cache=${CAPLV_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/caplv}/node
kubelet=$(realpath -e "${KUBEBUILDER_ASSETS:-/nonexistent}/kubelet" 2>/dev/null || hack/tools/build.sh kubelet)
digest=$({
	find "$source" test/bench/guest/disk.sh -type f -print0 | sort -z | xargs -0 sha256sum
	basename "$(dirname "$kubelet")"
} | sha256sum | cut -c1-16)
image=$cache/$digest
if [ ! -d "$image" ]; then
	mkdir -p "$cache"
	exec 9>"$cache/lock"
	flock 9
fi
if [ ! -d "$image" ]; then
	echo "node-image.sh: building the image from Debian's packages; this takes two or three minutes" >&2
	# Built beside its final name and renamed: an interrupted build leaves nothing that looks finished.
	partial=$(mktemp -d "$image.XXXXXX")
	trap 'rm -rf "$partial"' EXIT
	hack/as-root.sh "$source/build.sh" "$partial" "$kubelet" >&2
	chmod 755 "$partial"
	mv "$partial" "$image"
	trap - EXIT
fi
echo "$image/guest-node.qcow2"
