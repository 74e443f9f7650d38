#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs every fuzz target of the repository for FUZZTIME (default: 10s), one after the other, also when one fails, and ends
# with a summary. A target has to have seeds, by f.Add or below testdata/fuzz.
#
#   hack/fuzz.sh [PATTERN]    only the targets whose DIRECTORY/NAME matches this regular expression
#
# Only little of the time goes into making inputs smaller: left alone, the fuzzer spends it all on the first large one.
# An input that fails is kept by `go test` below testdata/fuzz of its package: check it in with the fix.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
pattern=${1-}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# has_seeds FILE TARGET looks for an f.Add in the target.
has_seeds() {
	[ -n "$(find "$(dirname "$1")/testdata/fuzz/$2" -type f -print -quit 2>/dev/null)" ] ||
		awk -v start="^func $2[(]" '$0 ~ start { inside = 1 } inside && /f[.]Add[(]/ { found = 1 } inside && /^}/ { exit } END { exit !found }' "$1"
}

# fuzz DIRECTORY TARGET runs one target. Before Go 1.27, the coordinator may lose a race with its own clock at the end of the
# time, and reports that as a failure (https://go.dev/issue/75804): "context deadline exceeded", and nothing else. A finding
# always names an input. The run that was disturbed is repeated, so that one that is disturbed each time still fails.
fuzz() {
	local try
	for try in 1 2 3; do
		if go test -run '^$' -fuzz "^$2\$" -fuzztime "${FUZZTIME:-10s}" -fuzzminimizetime 10x -timeout 30m "$1" 2>&1 | tee "$log"; then
			return 0
		fi
		lost_race "$2" || return 1
		echo "fuzz.sh: the fuzzer's own deadline ended try $try, without a finding" >&2
	done
	return 1
}

# lost_race TARGET looks at the last run's output: the target failed, and the only thing said of it is the deadline.
lost_race() {
	! grep -q -i -E 'failing input|panic:|testdata/fuzz' "$log" &&
		[ "$(grep -A 1 "^--- FAIL: $1 " "$log" | tail -1)" = "    context deadline exceeded" ]
}

targets=$(grep -rHoE --include='*_test.go' --exclude-dir='.?*' '^func Fuzz[A-Za-z0-9_]*\(' . | sort)
failed=0
summary=()
while IFS=: read -r file declaration; do
	target=${declaration#func }
	target=${target%%(*}
	directory=$(dirname "$file")
	if [ -n "$pattern" ] && ! [[ ${directory#./}/$target =~ $pattern ]]; then continue; fi
	echo "=== $target in $directory"
	started=$SECONDS
	result=ok
	if ! has_seeds "$file" "$target"; then
		echo "fuzz.sh: $target in $file has no seeds; add some with f.Add, or below testdata/fuzz/$target" >&2
		result=failed
	elif ! fuzz "$directory" "$target"; then
		result=failed
	fi
	if [ "$result" = failed ]; then failed=1; fi
	summary+=("$(printf '%-6s %4d s  %s' "$result" "$((SECONDS - started))" "${directory#./}/$target")")
done <<<"$targets"
echo
echo "=== ${#summary[@]} fuzz targets"
printf '%s\n' "${summary[@]}"
[ "${#summary[@]}" -gt 0 ] && [ "$failed" = 0 ]
