#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs groups of tests, every one even when an earlier one failed, and ends with a summary:
#
#   hack/test.sh GROUP…       GROUP: unit, bench, playbooks, e2e or demo (Go); python; molecule
#
# GOTESTFLAGS is added to each `go test`. What go test said, as JSON, stays in out/test/GROUP.json.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The Makefile has linked these; without the links the tests look for the binaries by themselves.
if [ -x bin/kube-apiserver ]; then export KUBEBUILDER_ASSETS=${KUBEBUILDER_ASSETS:-$PWD/bin}; fi
if [ -x bin/capi-core ]; then export CAPI_CORE=${CAPI_CORE:-$PWD/bin/capi-core}; fi
if [ -x bin/kustomize ]; then export KUSTOMIZE=${KUSTOMIZE:-$PWD/bin/kustomize}; fi

# Asked now, not after an hour of unit tests.
for group in "$@"; do
	if [ "$group" != unit ] && ! hack/as-root.sh true; then
		echo "test.sh: group $group needs root; run it as root or allow sudo, or run \`make test-unit\` alone" >&2
		exit 1
	fi
done

out=out/test
mkdir -p "$out"

# packages_of GROUP prints its packages.
packages_of() {
	case $1 in
	unit) go list ./... | grep -v -E '/test/(bench|playbooks|e2e|demo)(/|$)' ;;
	playbooks) go list ./test/playbooks/... ;;
	bench) go list ./test/bench/... ;;
	e2e) go list ./test/e2e/... ;;
	demo) go list ./test/demo/... ;;
	*) echo "test.sh: no group is called '$1'" >&2; exit 2 ;;
	esac
}

# flags_of GROUP prints its flags. Packages that share the machine (a test host's names, its memory) run one by one.
flags_of() {
	case $1 in
	unit) echo "-timeout 20m" ;;
	bench) echo "-timeout 30m -p 1 -exec $PWD/hack/as-root.sh" ;;
	playbooks) echo "-timeout 30m -p 1 -exec $PWD/hack/as-root.sh" ;;
	e2e) echo "-timeout 60m -p 1 -exec $PWD/hack/as-root.sh" ;;
	demo) echo "-timeout 30m -p 1 -exec $PWD/hack/as-root.sh" ;;
	esac
}

# Each of these runs a group, writes what to say of it into out/test/GROUP.counts, and fails when a test does.

run_go() {
	local group=$1 list packages flags
	if ! list=$(packages_of "$group") || [ -z "$list" ]; then
		echo "no packages" >"$out/$group.counts"
		return 1
	fi
	mapfile -t packages <<<"$list"
	read -r -a flags <<<"$(flags_of "$group") ${GOTESTFLAGS-}"
	# -count=1: a cached result says nothing about the machine, which most of these tests are about.
	go test -json -count=1 "${flags[@]}" "${packages[@]}" | tee "$out/$group.json" | hack/test-report.sh "$out/$group.counts"
}

# run_python tests modules and plugins; some tests mount a small file system, and need root.
run_python() {
	local status=0
	hack/as-root.sh env PYTHONDONTWRITEBYTECODE=1 .venv/bin/python -m pytest -p no:cacheprovider --color=no test/unit/ansible |
		tee "$out/python.log" || status=$?
	tail -1 "$out/python.log" | sed -E 's/^=+ //; s/ in [0-9.]+s.*//; s/ =+$//' >"$out/python.counts"
	return "$status"
}

run_molecule() {
	local status=0
	hack/as-root.sh hack/molecule.sh | tee "$out/molecule.log" || status=$?
	tail -1 "$out/molecule.log" >"$out/molecule.counts"
	return "$status"
}

failed=0
summary=()
for group in "$@"; do
	echo "=== $group"
	start=$SECONDS
	case $group in
	python | molecule) run=run_$group ;;
	*) run=run_go ;;
	esac
	echo "ended early" >"$out/$group.counts"
	$run "$group" || failed=1
	summary+=("$(printf '%-9s %s, %s s' "$group" "$(cat "$out/$group.counts")" "$((SECONDS - start))")")
done

echo
echo "=== Summary"
printf '%s\n' "${summary[@]}"
exit "$failed"
