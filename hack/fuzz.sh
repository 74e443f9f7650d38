#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs every fuzz target of the repository for FUZZTIME (default: 10s), one after the other.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

found=0
while IFS=: read -r file declaration; do
	target=${declaration#func }
	target=${target%%(*}
	echo "=== $target in $(dirname "$file")"
	go test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-10s}" -timeout 30m "./$(dirname "$file")"
	found=$((found + 1))
done < <(grep -rHoE --include='*_test.go' --exclude-dir='.?*' '^func Fuzz[A-Za-z0-9_]*\(' .)
echo "=== $found fuzz targets"
[ "$found" -gt 0 ]
