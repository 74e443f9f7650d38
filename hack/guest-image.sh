#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds the test guests' images unless the cache holds them, and prints the directory that holds them. The directory is
# named after the digest of everything in test/bench/guest, so that a changed guest is never confused with an old one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

source=test/bench/guest
cache=${CAPLV_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/caplv}/guest
digest=$(cd "$source" && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -c1-16)
image=$cache/$digest
if [ ! -d "$image" ]; then
	mkdir -p "$cache"
	exec 9>"$cache/lock"
	flock 9
fi
if [ ! -d "$image" ]; then
	# Built beside its final name and renamed: an interrupted build leaves nothing that looks finished.
	partial=$(mktemp -d "$image.XXXXXX")
	trap 'rm -rf "$partial"' EXIT
	"$source/build.sh" "$partial" >&2
	mv "$partial" "$image"
	trap - EXIT
fi
echo "$image"
