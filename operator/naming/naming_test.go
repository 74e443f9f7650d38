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
		{"63 characters are not cut", "default", strings.Repeat("x", 52), "w1", "default-" + strings.Repeat("x", 52) + "-w1"},
		{"64 characters are", "default", strings.Repeat("x", 53), "w1", "default-" + strings.Repeat("x", 43) + "--185025794a"},
		{"a cut does not leave a third dash", "default", strings.Repeat("x", 42) + "-y", "w-1", "default-" + strings.Repeat("x", 42) + "--3eeb3849f3"},
		{"a machine's name may be a long DNS subdomain", "default", "prod", strings.Repeat("node.", 50) + "x", "default-prod-" + strings.Repeat("node-", 7) + "nod--964fdbf208"},
		{"a name of one character a part is plain", "a", "b", "c", "a-b-c"},
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

func TestVolumes(t *testing.T) {
	g := NewWithT(t)
	g.Expect(naming.RootVolume("ns-cluster-worker01")).To(Equal("ns-cluster-worker01-root.qcow2"))
	g.Expect(naming.DataVolume("ns-cluster-worker01", "etcd")).To(Equal("ns-cluster-worker01.etcd.qcow2"))
	g.Expect(naming.DataVolume("ns-cluster-worker01", "root")).NotTo(Equal(naming.RootVolume("ns-cluster-worker01")))
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
