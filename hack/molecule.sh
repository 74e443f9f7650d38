#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs `molecule test` for each scenario below molecule/, or for those that are named, two at a time, and ends with a summary.
# It needs root, for the hosts. What a scenario prints is shown when it fails, and stays in out/molecule/SCENARIO.log.
#
#   hack/molecule.sh [SCENARIO…]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# molecule calls Ansible's programs by their names.
PATH=$PWD/.venv/bin:$PATH
export PATH ANSIBLE_NOCOLOR=1 PY_COLORS=0 ANSIBLE_FORCE_COLOR=0

# molecule finds it by itself only in a checkout of git.
base=$PWD/.config/molecule/config.yml
if [ $# -gt 0 ]; then
	scenarios=("$@")
else
	scenarios=()
	for file in molecule/*/molecule.yml; do scenarios+=("$(basename "$(dirname "$file")")"); done
fi
out=out/molecule
mkdir -p "$out"
rm -f "$out"/*.result

# run SCENARIO
run() {
	local started=$SECONDS result=ok
	molecule --base-config "$base" test --scenario-name "$1" >"$out/$1.log" 2>&1 </dev/null || result=failed
	if [ "$result" = failed ]; then
		echo "=== $1 failed; the end of out/molecule/$1.log:"
		tail -60 "$out/$1.log"
		# The hosts of a scenario that fails early are left behind.
		molecule --base-config "$base" destroy --scenario-name "$1" >/dev/null 2>&1 </dev/null || :
	fi
	printf '%-6s %4d s  %s\n' "$result" "$((SECONDS - started))" "$1" | tee "$out/$1.result"
}

for scenario in "${scenarios[@]}"; do
	while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n || :; done
	run "$scenario" &
done
wait
echo
echo "=== Scenarios"
cat "$out"/*.result
failed=$(cat "$out"/*.result | awk '$1 == "failed" { n++ } END { print n + 0 }')
echo "$((${#scenarios[@]} - failed)) passed, $failed failed"
[ "$failed" = 0 ]
