#!/usr/bin/env bash
# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Builds one development tool from its Go module and prints the path of the binary.
#
#   hack/tools/build.sh NAME      NAME: see the table below
#
# Built one after the other from nothing on two cores, kube-controller-manager takes 3 to 4 minutes after kube-apiserver, and
# kubelet 1 to 2 more: most packages are the same.
#
# A binary is cached under the digest of everything that decides its content (go.mod, go.sum, Go's version,
# flags), so that a second build costs nothing and a changed pin never meets a stale binary.
# CAPLV_CACHE moves the cache (default: caplv in the user's cache directory).
set -euo pipefail

tools_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${CAPLV_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/caplv}/tools

module_version() { (cd "$tools_dir/$1" && awk -v m="$2" '$1==m{print $2} $1=="require"&&$2==m{print $3}' go.mod | head -n 1); }

name=${1:?usage: build.sh NAME}
ldflags="-s -w"
case $name in
etcd)            module=etcd package=go.etcd.io/etcd/server/v3 ;;
kube-apiserver)  module=k8s  package=k8s.io/kubernetes/cmd/kube-apiserver ;;
kubectl)         module=k8s  package=k8s.io/kubernetes/cmd/kubectl ;;
kubelet)         module=k8s  package=k8s.io/kubernetes/cmd/kubelet ;;
kube-controller-manager) module=k8s package=k8s.io/kubernetes/cmd/kube-controller-manager ;;
capi-core)       module=capi package=sigs.k8s.io/cluster-api/core ;;
controller-gen)  module=controller-gen package=sigs.k8s.io/controller-tools/cmd/controller-gen ;;
golangci-lint)   module=golangci-lint package=github.com/golangci/golangci-lint/v2/cmd/golangci-lint ;;
kustomize)       module=kustomize package=sigs.k8s.io/kustomize/kustomize/v5 ;;
*) echo "build.sh: no tool is called '$name'" >&2; exit 2 ;;
esac

# Cluster API refuses an API server that does not say which version it is, so the version is stamped in.
case $module in
k8s)
	version=$(module_version k8s k8s.io/kubernetes)
	IFS=. read -r major minor _ <<<"${version#v}"
	for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		ldflags+=" -X $p.gitVersion=$version -X $p.gitMajor=$major -X $p.gitMinor=$minor"
	done ;;
capi)
	ldflags+=" -X sigs.k8s.io/cluster-api/version.gitVersion=$(module_version capi sigs.k8s.io/cluster-api)" ;;
esac

key=$({ cat "$tools_dir/$module/go.mod" "$tools_dir/$module/go.sum"; go env GOVERSION GOOS GOARCH; echo "$package $ldflags"; } | sha256sum | cut -c1-16)
out=$cache/$name-$key/$name
if [ ! -x "$out" ]; then
	mkdir -p "$(dirname "$out")"
	# Packages that are tested side by side ask for the same tool at once: the first builds it, the others wait.
	exec 9>"$(dirname "$out").lock"
	flock 9
fi
if [ ! -x "$out" ]; then
	echo "building $name ($package); the first build can take several minutes" >&2
	start=$SECONDS
	# Built beside its final name and renamed: an interrupted build leaves nothing that looks finished.
	(cd "$tools_dir/$module" && CGO_ENABLED=0 go build -trimpath -ldflags "$ldflags" -o "$out.tmp.$$" "$package")
	mv "$out.tmp.$$" "$out"
	echo "built $name in $((SECONDS - start)) s" >&2
fi
echo "$out"
