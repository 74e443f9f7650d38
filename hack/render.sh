#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Prints the manifests of operator/config/default with the images of the manager and of its sidecar replaced:
#
#   hack/render.sh IMAGE RUNNER_IMAGE      each of them name, name:tag or name@digest
#
# `kustomize edit set image` would do the same and leave the change in the checkout.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

image=${1:?usage: render.sh IMAGE RUNNER_IMAGE}
runner=${2:?usage: render.sh IMAGE RUNNER_IMAGE}
for name in "$image" "$runner"; do
	if ! [[ $name =~ ^[A-Za-z0-9._:/@-]+$ ]]; then
		echo "render.sh: '$name' is not the name of an image" >&2
		exit 2
	fi
done

# Inside the checkout, because kustomize takes no absolute paths.
mkdir -p out
overlay=$(mktemp -d out/render.XXXXXX)
trap 'rm -rf "$overlay"' EXIT
cat >"$overlay/kustomization.yaml" <<YAML
resources: [../../operator/config/default]
patches:
- target: {kind: Deployment, name: controller-manager}
  patch: |-
    - {op: test, path: /spec/template/spec/containers/0/name, value: manager}
    - {op: replace, path: /spec/template/spec/containers/0/image, value: '$image'}
    - {op: test, path: /spec/template/spec/containers/1/name, value: ansible-runner}
    - {op: replace, path: /spec/template/spec/containers/1/image, value: '$runner'}
YAML
bin/kustomize build "$overlay"
