// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

var yamlBlock = regexp.MustCompile("(?s)(?:^|\n)```yaml\n(.*?\n)```")

// TestEveryYAMLThatUsersAreShownIsAccepted applies each document to the API server, with its CRDs and webhooks, as a dry run.
func TestEveryYAMLThatUsersAreShownIsAccepted(t *testing.T) {
	g := NewWithT(t)
	documents := map[string]string{}
	pages, err := filepath.Glob(filepath.Join(suite.repository, "docs", "*.md"))
	g.Expect(err).NotTo(HaveOccurred())
	for _, page := range append(pages, filepath.Join(suite.repository, "README.md")) {
		content, err := os.ReadFile(page)
		g.Expect(err).NotTo(HaveOccurred())
		for i, match := range yamlBlock.FindAllStringSubmatch(string(content), -1) {
			// Others are variables of playbooks.
			if strings.Contains(match[1], "apiVersion: ") {
				documents[filepath.Base(page)+fmt.Sprintf(" block %d", i+1)] = match[1]
			}
		}
	}
	g.Expect(len(documents)).To(BeNumerically(">=", 3), "the README shows host, cluster and machine")
	samples, err := filepath.Glob(filepath.Join(suite.repository, "operator", "config", "samples", "*.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	for _, sample := range samples {
		if filepath.Base(sample) == "kustomization.yaml" {
			continue
		}
		content, err := os.ReadFile(sample)
		g.Expect(err).NotTo(HaveOccurred())
		documents[filepath.Base(sample)] = string(content)
	}
	for name, document := range documents {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			file := filepath.Join(t.TempDir(), "document.yaml")
			g.Expect(os.WriteFile(file, []byte(document), 0o600)).To(Succeed())
			// Strict: a field that the API does not have is an error, not a warning.
			out, err := suite.cp.Kubectl(t.Context(), "apply", "--dry-run=server", "--validate=strict", "-f", file)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(strings.Count(out, "server dry run")).To(Equal(strings.Count(document, "\nkind: ")))
		})
	}
}

// TestTheSamplesBuild checks that the samples can be applied as a whole, in their order.
func TestTheSamplesBuild(t *testing.T) {
	g := NewWithT(t)
	out, err := suite.cp.KustomizeBuild(t.Context(), filepath.Join(suite.repository, "operator", "config", "samples"))
	g.Expect(err).NotTo(HaveOccurred())
	for _, kind := range []string{"Cluster", "LibvirtCluster", "LibvirtExternalControlPlane", "LibvirtHost", "LibvirtMachine", "LibvirtRemediationTemplate", "Machine", "MachineHealthCheck", "Secret"} {
		g.Expect(string(out)).To(ContainSubstring("\nkind: " + kind + "\n"))
	}
}

// TestTheOperatorHasNoMoreRightsThanItNeeds spot-checks the shipped roles with the account of the operator.
func TestTheOperatorHasNoMoreRightsThanItNeeds(t *testing.T) {
	for verb, want := range map[string]string{
		"get secrets": "yes", "list secrets": "no", "watch secrets": "no", "create secrets": "yes", "patch secrets": "yes", "update secrets": "no", "delete secrets": "no",
		"create libvirtmachines.infrastructure.cluster.x-k8s.io": "no", "delete libvirtmachines.infrastructure.cluster.x-k8s.io": "no",
		"patch machines.cluster.x-k8s.io": "no", "delete machines.cluster.x-k8s.io": "yes", "create machines.cluster.x-k8s.io": "no",
		"list pods": "yes", "create pods": "no", "delete pods": "no", "create pods --subresource=eviction": "yes",
		"watch nodes": "yes", "patch nodes": "yes", "create nodes": "no", "update nodes": "no", "delete nodes": "yes",
		"watch certificatesigningrequests.certificates.k8s.io": "yes", "delete certificatesigningrequests.certificates.k8s.io": "no",
		"create leases.coordination.k8s.io": "no", "create leases.coordination.k8s.io -n caplv-system": "yes",
		"update leases.coordination.k8s.io/caplv-manager.infrastructure.cluster.x-k8s.io -n caplv-system": "yes",
		"update leases.coordination.k8s.io/another -n caplv-system":                                       "no",
	} {
		t.Run(verb, func(t *testing.T) {
			g := NewWithT(t)
			args := append([]string{"auth", "can-i"}, strings.Fields(verb)...)
			// kubectl's exit status says no as well.
			out, _ := suite.cp.Kubectl(t.Context(), append(args, "--as=system:serviceaccount:caplv-system:caplv-manager")...)
			g.Expect(strings.TrimSpace(out)).To(Equal(want))
		})
	}
}
