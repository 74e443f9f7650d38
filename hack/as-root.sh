#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Runs a program as root, through sudo when we are somebody else:
#
#   hack/as-root.sh PROGRAM [ARGUMENT…]
#
# `go test -exec` and `go run -exec` use it, so that the build stays the caller's and only the program is root.
set -euo pipefail

if [ "$(id -u)" = 0 ]; then
	exec "$@"
fi
if ! command -v sudo >/dev/null; then
	echo "as-root.sh: this needs root (network namespaces, libvirtd, loop devices) and there is no sudo; run it as root" >&2
	exit 1
fi
# sudo drops the environment. These variables decide where programs and modules are found; GOCACHE is left out, so that
# root leaves no files in it.
keep=("PATH=$PATH" "GOMODCACHE=$(go env GOMODCACHE)")
for v in CAPLV_CACHE CGO_ENABLED KUBEBUILDER_ASSETS CAPI_CORE KUSTOMIZE GOFLAGS GOPROXY GOTOOLCHAIN TMPDIR; do
	if [ -n "${!v-}" ]; then
		keep+=("$v=${!v}")
	fi
done
while IFS= read -r v; do
	keep+=("$v=${!v}")
done < <(compgen -e CAPLV_ | grep -vx CAPLV_CACHE || true)
exec sudo -- env "${keep[@]}" "$@"
