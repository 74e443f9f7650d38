# Copyright The CAPLV Authors.
# SPDX-License-Identifier: Apache-2.0

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := help

# Where tools, guest images and everything else that is worth keeping between builds are cached.
export CAPLV_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/caplv

# Stamped into the programs; empty without a release tag, and they then call themselves development builds.
VERSION        ?= $(shell git describe --tags --match 'v*' --dirty 2>/dev/null)
LDFLAGS        ?= -s -w $(if $(VERSION),-X github.com/caplv/caplv/operator/version.version=$(VERSION))
# Everything is pure Go; the same setting everywhere lets builds and tests share their cache.
export CGO_ENABLED ?= 0

IMG            ?= localhost/caplv:dev
RUNNER_IMG     ?= localhost/caplv-ansible-runner:dev
CONTAINER_TOOL ?= podman
FUZZTIME       ?= 10s
BENCHTIME      ?= 1s
BENCHPKG       ?= ./api/... ./cmd/... ./operator/...
BENCHROUNDS    ?= 7
BENCHMIB       ?= 1024
# The interpreter that the virtual environments are made with.
PYTHON         ?= python3

TOOLS       := controller-gen golangci-lint kustomize kubectl etcd kube-apiserver capi-core kube-controller-manager kubelet
TOOL_INPUTS := hack/tools/build.sh $(wildcard hack/tools/*/go.mod hack/tools/*/go.sum)
CRDS        := operator/config/crd
RBAC        := operator/config/rbac
WEBHOOKS    := operator/config/webhook

##@ General

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN { FS = ":.*## "; print "Usage: make TARGET [VARIABLE=value …]" } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-zA-Z0-9_-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

##@ Development

.PHONY: build
build: ## Build the manager and its sidecar: bin/manager and bin/ansible-runner.
	CGO_ENABLED=0 go build -trimpath -ldflags "$(LDFLAGS)" -o bin/ ./cmd/manager ./cmd/ansible-runner

.PHONY: generate
generate: bin/controller-gen ## Generate the API types' DeepCopy methods.
	bin/controller-gen object:headerFile=hack/boilerplate.go.txt paths=./api/...

.PHONY: manifests
manifests: bin/controller-gen ## Generate CRDs, the manager's ClusterRole and webhook configurations from markers.
	bin/controller-gen crd:generateEmbeddedObjectMeta=true paths=./api/... output:crd:artifacts:config=$(CRDS)/bases
	bin/controller-gen rbac:roleName=manager-role webhook paths=./operator/... \
	  output:rbac:artifacts:config=$(RBAC) output:webhook:artifacts:config=$(WEBHOOKS)

.PHONY: ansible-deps
ansible-deps: ## Make .venv and .venv-el8, with what the roles are run and tested with, from requirements*.txt.
	hack/ansible-deps.sh $(PYTHON)

.PHONY: fmt
fmt: bin/golangci-lint ## Format the Go code and sort its imports.
	bin/golangci-lint fmt

.PHONY: tidy
tidy: ## Tidy go.mod and go.sum.
	go mod tidy

##@ Checks

.PHONY: vet
vet: ## Run go vet.
	go vet ./...

.PHONY: lint
lint: bin/golangci-lint lint-shell lint-ansible ## Run golangci-lint, lint-shell and lint-ansible.
	bin/golangci-lint run

.PHONY: lint-ansible
lint-ansible: ansible-deps ## Run yamllint, and ansible-lint with its production profile.
	.venv/bin/yamllint --strict .
	.venv/bin/ansible-lint

.PHONY: lint-shell
lint-shell: ## Check the syntax of shell scripts, and shellcheck them where it is installed.
	hack/lint-shell.sh

.PHONY: verify
verify: verify-generated verify-tidy verify-fmt ## Check that generated files, go.mod and formatting are up to date.

.PHONY: verify-generated
verify-generated: bin/controller-gen
	hack/verify-generated.sh

.PHONY: verify-tidy
verify-tidy:
	go mod tidy -diff

.PHONY: verify-fmt
verify-fmt: bin/golangci-lint
	bin/golangci-lint fmt --diff

##@ Tests

.PHONY: test
test: bench-tools guest-image node-image ansible-deps ## Run all tests; the summary comes last.
	hack/test.sh unit python bench e2e+molecule,playbooks demo

.PHONY: test-unit
test-unit: bench-tools ansible-deps ## Run unit and envtest tests; needs no root.
	hack/test.sh unit

.PHONY: test-race
test-race: bench-tools ansible-deps ## Run unit and envtest tests under the race detector; needs a C compiler.
	CGO_ENABLED=1 GOTESTFLAGS="-race $(GOTESTFLAGS)" hack/test.sh unit

.PHONY: test-ansible
test-ansible: bench-tools ansible-deps ## Run the tests of modules, plugins, roles and playbooks, on test hosts; needs root.
	hack/test.sh python molecule playbooks

.PHONY: test-playbooks
test-playbooks: bench-tools ansible-deps ## Run the playbooks on test hosts; needs root.
	hack/test.sh playbooks

.PHONY: molecule
molecule: ansible-deps ## Run molecule's scenarios, or those of SCENARIOS, on test hosts; needs root.
	hack/as-root.sh hack/molecule.sh $(SCENARIOS)

.PHONY: test-bench
test-bench: bench-tools guest-image ansible-deps ## Run the tests of the test bench itself; needs root.
	hack/test.sh bench

.PHONY: test-e2e
test-e2e: bench-tools guest-image node-image ansible-deps ## Run the end-to-end tests on test hosts with real virtual machines; needs root.
	hack/test.sh e2e

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME.
	FUZZTIME=$(FUZZTIME) hack/fuzz.sh

.PHONY: bench
bench: bench-go bench-operator bench-artifacts ## Run bench-go, bench-operator and bench-artifacts.

.PHONY: bench-go
bench-go: ## Run the Go benchmarks of BENCHPKG, each for BENCHTIME.
	go test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) -timeout 30m $(BENCHPKG)

.PHONY: bench-operator
bench-operator: bench-tools guest-image ansible-deps ## Measure the operator against the same work by hand, BENCHROUNDS times; needs root.
	hack/as-root.sh test/bench/packages.sh --install
	KUBEBUILDER_ASSETS=$(CURDIR)/bin KUSTOMIZE=$(CURDIR)/bin/kustomize CAPI_CORE=$(CURDIR)/bin/capi-core \
	  go run -exec "$(CURDIR)/hack/as-root.sh" ./test/perf -rounds $(BENCHROUNDS)

.PHONY: bench-artifacts
bench-artifacts: ## Measure fetching a file of BENCHMIB MiB into the cache against curl | gunzip | sha256sum; needs curl, gzip, zstd and xz.
	go run ./test/perf/fetch -size $(BENCHMIB)

.PHONY: measure-onboarding
measure-onboarding: ansible-deps ## Measure onboard_host.yml, a first and a second run, on 1 host and on 10; needs root.
	go run -exec "$(CURDIR)/hack/as-root.sh" ./test/playbooks/measure -hosts 10

.PHONY: bench-runner
bench-runner: ansible-deps ## Measure runs on 50 hosts at once in the sidecar, against one process a host; needs root.
	go run -exec "$(CURDIR)/hack/as-root.sh" ./test/playbooks/benchrunner

.PHONY: bench-tools
bench-tools: $(addprefix bin/,kustomize kubectl etcd kube-apiserver capi-core) ## Build the control plane that tests run against; the first build takes long.

.PHONY: node-tools
node-tools: $(addprefix bin/,kube-controller-manager kubelet) ## Build the kubelet, and what signs its certificates.

.PHONY: guest-image
guest-image: ## Build the test guests' images, into the cache.
	hack/guest-image.sh

.PHONY: node-image
node-image: node-tools ## Build the image of a guest that becomes a node, into the cache; needs root.
	hack/as-root.sh test/bench/packages.sh --install
	hack/node-image.sh

.PHONY: test-hosts
test-hosts: ansible-deps ## Set up what test hosts are made of, into the cache, with playbooks/onboard_host.yml; needs root.
	hack/as-root.sh test/bench/packages.sh --install
	hack/as-root.sh test/bench/onboarded.sh system
	hack/as-root.sh test/bench/onboarded.sh session

##@ Demo

.PHONY: demo
demo: bench-tools guest-image ansible-deps ## Bring up a control plane, a test host and the operator on this machine; needs root.
	go run -exec "$(CURDIR)/hack/as-root.sh" ./test/demo up

.PHONY: demo-down
demo-down: ## Remove what the demo brought up.
	go run -exec "$(CURDIR)/hack/as-root.sh" ./test/demo down

##@ Container image

.PHONY: podman-build
podman-build: ## Build the container images of the manager and its sidecar, IMG and RUNNER_IMG.
	$(CONTAINER_TOOL) build --build-arg LDFLAGS="$(LDFLAGS)" -t $(IMG) -f Containerfile .
	$(CONTAINER_TOOL) build --build-arg LDFLAGS="$(LDFLAGS)" -t $(RUNNER_IMG) -f Containerfile.ansible-runner .

.PHONY: podman-push
podman-push: ## Push the container images IMG and RUNNER_IMG.
	$(CONTAINER_TOOL) push $(IMG)
	$(CONTAINER_TOOL) push $(RUNNER_IMG)

##@ Deployment

.PHONY: install
install: bin/kustomize bin/kubectl ## Install the CRDs into the cluster of the current kubeconfig.
	bin/kustomize build $(CRDS) | bin/kubectl apply --server-side -f -

.PHONY: uninstall
uninstall: bin/kustomize bin/kubectl ## Remove the CRDs, and with them every object of their kinds.
	bin/kustomize build $(CRDS) | bin/kubectl delete --ignore-not-found -f -

.PHONY: deploy
deploy: bin/kustomize bin/kubectl ## Deploy CRDs, roles, webhooks and the manager with images IMG and RUNNER_IMG.
	hack/render.sh "$(IMG)" "$(RUNNER_IMG)" | bin/kubectl apply --server-side -f -

.PHONY: undeploy
undeploy: bin/kustomize bin/kubectl ## Remove what deploy installed.
	hack/render.sh "$(IMG)" "$(RUNNER_IMG)" | bin/kubectl delete --ignore-not-found -f -

.PHONY: build-installer
build-installer: bin/kustomize ## Write everything that deploy applies to out/infrastructure-components.yaml.
	mkdir -p out
	hack/render.sh "$(IMG)" "$(RUNNER_IMG)" > out/infrastructure-components.yaml

##@ Housekeeping

.PHONY: clean
clean: ## Remove what was built in this directory; the cache stays.
	rm -rf bin out

# The links follow the pins: when go.mod or go.sum of a tool changes, the link points to the new build.
$(TOOLS:%=bin/%): bin/%: $(TOOL_INPUTS)
	@mkdir -p bin
	@path=$$(hack/tools/build.sh $*) && ln -sfn "$$path" $@
