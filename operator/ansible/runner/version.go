// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"
)

var corePattern = regexp.MustCompile(`^ansible-playbook \[core ([^\]]+)\]`)

// ansibleVersion asks ansible-playbook.
func ansibleVersion(ctx context.Context, o *Options) (string, error) {
	home, err := os.MkdirTemp(o.WorkDir, "version")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(home) }()
	cmd := exec.CommandContext(ctx, o.Program, "--version") //nolint:gosec // The program is an option of whoever starts this one.
	cmd.Env = []string{"PATH=" + searchPath(o), "HOME=" + home, "LC_ALL=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1"}
	output, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("asking %s for its version: %w", o.Program, err)
	}
	found := corePattern.FindSubmatch(output)
	if found == nil {
		return "", fmt.Errorf("%s does not say which version of ansible-core it is", o.Program)
	}
	return string(found[1]), nil
}

// rolesVersion is the collection's version with a digest of what playbooks and roles are: it differs whenever they do.
func rolesVersion(o *Options) (string, error) {
	content, err := os.ReadFile(filepath.Join(o.Project, "galaxy.yml"))
	if err != nil {
		return "", err
	}
	var galaxy struct {
		Version string `json:"version"`
	}
	if err := yaml.Unmarshal(content, &galaxy); err != nil {
		return "", fmt.Errorf("galaxy.yml: %w", err)
	}
	digest := sha256.New()
	for _, dir := range []string{o.Playbooks, filepath.Join(o.Project, "roles"), filepath.Join(o.Project, "plugins")} {
		// In the order of the names.
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() || strings.HasSuffix(path, ".pyc") {
				return err
			}
			content, err := os.ReadFile(path) //nolint:gosec // Whoever may write there may change the roles themselves.
			relative, _ := filepath.Rel(dir, path)
			fmt.Fprintf(digest, "%s %s %d\n%s", filepath.Base(dir), relative, len(content), content)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return galaxy.Version + "+" + hex.EncodeToString(digest.Sum(nil))[:12], nil
}

// searchPath is where the programs of a run are looked for: Ansible's own come first.
func searchPath(o *Options) string {
	return filepath.Dir(o.Program) + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
}
