// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// repository is this module; hack/tools/build.sh is found in its directory.
const repository = "github.com/caplv/caplv"

// toolPath returns the absolute path of a binary. KUBEBUILDER_ASSETS decides for the control plane, where few tests need
// kube-controller-manager, which may be missing there; CAPI_CORE and KUSTOMIZE decide for those two; otherwise hack/tools/build.sh builds the tool or finds it in its cache.
func toolPath(ctx context.Context, name string) (string, error) {
	switch name {
	case "etcd", "kube-apiserver", "kubectl":
		if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
			return filepath.Abs(filepath.Join(dir, name))
		}
	case "kube-controller-manager":
		path := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), name)
		if _, err := os.Stat(path); err == nil && path != name {
			return filepath.Abs(path)
		}
	case "capi-core":
		if path := os.Getenv("CAPI_CORE"); path != "" {
			return filepath.Abs(path)
		}
	case "kustomize":
		if path := os.Getenv("KUSTOMIZE"); path != "" {
			return filepath.Abs(path)
		}
	}
	root, err := output(ctx, "go", "list", "-m", "-f", "{{.Dir}}", repository)
	if err != nil {
		return "", fmt.Errorf("finding this repository: %w", err)
	}
	path, err := output(ctx, filepath.Join(string(root), "hack", "tools", "build.sh"), name)
	if err != nil {
		return "", fmt.Errorf("building %s: %w", name, err)
	}
	return string(path), nil
}

// moduleDir returns the directory of a required module, and downloads the module when it is not there yet.
func moduleDir(ctx context.Context, module string) (string, error) {
	out, err := output(ctx, "go", "mod", "download", "-json", module)
	if err != nil {
		return "", fmt.Errorf("finding module %s: %w", module, err)
	}
	var info struct{ Dir string }
	if err := json.Unmarshal(out, &info); err != nil {
		return "", fmt.Errorf("finding module %s: %w", module, err)
	}
	return info.Dir, nil
}

// output runs a command and returns its trimmed standard output. Standard error passes through: a build that takes
// minutes should be seen.
func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return bytes.TrimSpace(out), err
}
