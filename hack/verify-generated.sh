#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Fails when `make generate manifests` changes anything. It compares with the files as they are, not with what git
# knows, so that it also works in an unpacked archive and beside uncommitted work.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

before=$(mktemp -d)
trap 'rm -rf "$before"' EXIT
generated=(api operator/config)
cp -a --parents "${generated[@]}" "$before"
make generate manifests
status=0
for dir in "${generated[@]}"; do
	diff -ru "$before/$dir" "$dir" || status=1
done
if [ "$status" != 0 ]; then
	echo "verify-generated.sh: generated files were out of date; they are up to date now, commit them" >&2
fi
exit "$status"
