#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Makes .venv from requirements.txt and .venv-el8 from requirements-el8.txt. The environments themselves are in the cache, one
# for each content of the file, so that other checkouts share them.
#
#   ansible-deps.sh [PYTHON]    PYTHON: the interpreter, 3.11 or newer (python3)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${1:-python3}
cache=${CAPLV_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/caplv}/venv

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
	echo "ansible-deps.sh: $python is older than 3.11; name another one: make ansible-deps PYTHON=python3.12" >&2
	exit 1
}

# make_venv REQUIREMENTS LINK
make_venv() {
	local key path
	key=$( ("$python" -c 'import sys; print(sys.executable, sys.version)' && cat "$1") | sha256sum | cut -c1-16)
	path=$cache/$key
	mkdir -p "$cache"
	(
		# Two checkouts may want the same one at the same time.
		flock 9
		[ ! -e "$path/complete" ] || exit 0
		rm -rf "$path"
		"$python" -m venv "$path"
		# Compiling everything that ansible holds would take longer than it ever saves.
		"$path/bin/pip" install --quiet --no-compile --requirement "$1"
		touch "$path/complete"
	) 9>"$cache/lock"
	ln -sfn "$path" "$2"
	echo "$2: $("$2/bin/ansible" --version | sed -n 1p)"
}

make_venv requirements.txt .venv
make_venv requirements-el8.txt .venv-el8
