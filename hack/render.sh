#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Prints the manifests of operator/config/default with the manager's image replaced:
#
#   hack/render.sh IMAGE      IMAGE: name, name:tag or name@digest
#
# `kustomize edit set image` would do the same and leave the change in the checkout.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

image=${1:?usage: render.sh IMAGE}
if ! [[ $image =~ ^[A-Za-z0-9._:/@-]+$ ]]; then
	echo "render.sh: '$image' is not the name of an image" >&2
	exit 2
fi

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
YAML
bin/kustomize build "$overlay"
