#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Checks the syntax of each shell script with the shell that it asks for, and runs shellcheck where it is installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts=()
while IFS= read -r -d '' file; do
	# A file without a newline is no script of ours; binary files warn about null bytes.
	IFS= read -r first <"$file" 2>/dev/null || continue
	case $first in
	'#!'*bash*) bash -n "$file" ;;
	'#!'*/sh*) sh -n "$file" ;;
	*) continue ;;
	esac
	scripts+=("$file")
done < <(find . \( -path ./.git -o -path ./bin -o -path ./out -o -path ./collections -o -name ".venv*" \) -prune -o -type f -print0)

if command -v shellcheck >/dev/null; then
	shellcheck --severity=warning "${scripts[@]}"
	echo "${#scripts[@]} shell scripts: syntax and shellcheck"
else
	echo "${#scripts[@]} shell scripts: syntax only, shellcheck is not installed"
fi
