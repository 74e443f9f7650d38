#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs groups of tests, every one even when an earlier one failed, and ends with a summary:
#
#   hack/test.sh GROUP…                  GROUP: unit, bench, playbooks, e2e or demo (Go); python; molecule
#   hack/test.sh GROUP+BESIDE[,BESIDE]…  the groups after the plus sign run one after the other, at the same time as GROUP
#
# What groups that run beside another print is shown when one of them fails, and stays in out/test/GROUP.beside.log. The group
# bench counts the hosts of the whole machine: nothing may run beside it.
#
# GOTESTFLAGS is added to each `go test`. What go test said, as JSON, stays in out/test/GROUP.json.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The Makefile has linked these; without the links the tests look for the binaries by themselves.
if [ -x bin/kube-apiserver ]; then export KUBEBUILDER_ASSETS=${KUBEBUILDER_ASSETS:-$PWD/bin}; fi
if [ -x bin/capi-core ]; then export CAPI_CORE=${CAPI_CORE:-$PWD/bin/capi-core}; fi
if [ -x bin/kustomize ]; then export KUSTOMIZE=${KUSTOMIZE:-$PWD/bin/kustomize}; fi

# groups_of ARGUMENT… prints all groups, in the order of the summary.
groups_of() { printf '%s\n' "$@" | tr '+,' '\n\n'; }
mapfile -t groups < <(groups_of "$@")

# Asked now, not after an hour of unit tests.
for group in "${groups[@]}"; do
	case $group in
	unit | bench | playbooks | e2e | demo | python | molecule) ;;
	*)
		echo "test.sh: no group is called '$group'" >&2
		exit 2
		;;
	esac
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
	unit) go list ./... | grep -v -E '/test/(awx|bench|playbooks|e2e|demo)(/|$)' ;;
	playbooks) go list ./test/awx/... ./test/playbooks/... ;;
	bench) go list ./test/bench/... ;;
	e2e) go list ./test/e2e/... ;;
	demo) go list ./test/demo/... ;;
	esac
}

# flags_of GROUP prints its flags. Packages that share the machine (a test host's names, its memory) run one by one.
flags_of() {
	case $1 in
	unit) echo "-timeout 20m" ;;
	bench) echo "-timeout 30m -p 1 -exec $PWD/hack/as-root.sh" ;;
	# Half of a playbook's time is waiting.
	playbooks) echo "-timeout 45m -p 1 -parallel 3 -exec $PWD/hack/as-root.sh" ;;
	e2e) echo "-timeout 80m -p 1 -parallel 2 -exec $PWD/hack/as-root.sh" ;;
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

# run GROUP runs a group, and writes its line of the summary into out/test/GROUP.summary.
run() {
	local group=$1 run=run_go start=$SECONDS status=0
	case $group in
	python | molecule) run=run_$group ;;
	esac
	echo "=== $group"
	echo "ended early" >"$out/$group.counts"
	$run "$group" || status=1
	printf '%-9s %s, %s s\n' "$group" "$(cat "$out/$group.counts")" "$((SECONDS - start))" >"$out/$group.summary"
	return "$status"
}

# run_each GROUP… runs groups one after the other.
run_each() {
	local group status=0
	for group; do run "$group" || status=1; done
	return "$status"
}

for group in "${groups[@]}"; do printf '%-9s did not run\n' "$group" >"$out/$group.summary"; done
beside=
# Whoever interrupts this wants nothing to go on: what runs beside is a process group of its own.
trap '[ -z "$beside" ] || kill -- "-$beside" 2>/dev/null || :' EXIT
trap 'exit 130' INT TERM

failed=0
for argument in "$@"; do
	group=${argument%%+*}
	if [ "$group" != "$argument" ]; then
		IFS=, read -r -a others <<<"${argument#*+}"
		echo "=== ${others[*]}, beside $group: see $out/$group.beside.log"
		set -m
		run_each "${others[@]}" >"$out/$group.beside.log" 2>&1 </dev/null &
		beside=$!
		set +m
	fi
	run "$group" || failed=1
	if [ -n "$beside" ]; then
		if ! wait "$beside"; then
			failed=1
			cat "$out/$group.beside.log"
		fi
		beside=
	fi
done

echo
echo "=== Summary"
for group in "${groups[@]}"; do cat "$out/$group.summary"; done
exit "$failed"
