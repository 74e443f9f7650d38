// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package naming_test

import (
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/naming"
)

var label = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

func TestMachine(t *testing.T) {
	long := strings.Repeat("x", 63)
	for _, row := range []struct {
		name                        string
		namespace, cluster, machine string
		want                        string
	}{
		{"dashes in the cluster's name leave the promised plain form", "default", "my-ocp-cluster", "worker01", "default-my-ocp-cluster-worker01"},
		{"a dash in the machine's name adds a digest", "default", "prod", "worker-01", "default-prod-worker-01--fb2fd46ab7"},
		{"a dash in the namespace adds a digest", "team-a", "prod", "w1", "team-a-prod-w1--50612d8d62"},
		{"dots become dashes and add a digest", "default", "prod", "w1.example", "default-prod-w1-example--d264a60be4"},
		{"a name that is too long is cut and gets a digest", "default", long, "w1", "default-" + strings.Repeat("x", 43) + "--406eeaa00f"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			got := naming.Machine(row.namespace, row.cluster, row.machine)
			g.Expect(got).To(MatchRegexp(label.String()))
			g.Expect(len(got)).To(BeNumerically("<=", naming.MaxLength))
			g.Expect(got).To(Equal(row.want))
		})
	}
}

func TestMachinesThatWouldReadAlikeHaveDifferentNames(t *testing.T) {
	g := NewWithT(t)
	seen := map[string][3]string{}
	parts := []string{"a", "b", "a-b", "b-c", "c", "a-b-c", "a.b", "a--b", strings.Repeat("a", 63), strings.Repeat("a", 60) + "-b"}
	for _, namespace := range parts {
		if strings.Contains(namespace, ".") {
			continue
		}
		for _, cluster := range parts {
			for _, machine := range parts {
				name := naming.Machine(namespace, cluster, machine)
				g.Expect(name).To(MatchRegexp(label.String()))
				g.Expect(len(name)).To(BeNumerically("<=", naming.MaxLength))
				g.Expect(seen).NotTo(HaveKey(name), "%v and %v", seen[name], []string{namespace, cluster, machine})
				seen[name] = [3]string{namespace, cluster, machine}
			}
		}
	}
}
