// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootartifact

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/hostctl"
)

func setOf(dir, kernel, initramfs string) Set {
	return Set{Kernel: hostctl.BootFile{Dir: dir, SHA256: kernel, Name: hostctl.KernelFile}, Initramfs: hostctl.BootFile{Dir: dir, SHA256: initramfs, Name: hostctl.InitramfsFile}}
}

func TestRecordsSayForWhomFilesAre(t *testing.T) {
	g := NewWithT(t)
	now := metav1.NewTime(time.Unix(1700000000, 0))
	records := intend(nil, setOf("/a", "k1", "i1"), "c")
	g.Expect(records).To(Equal([]infrav1.HostBootArtifact{
		{HostPath: "/a", SHA256: "k1", ClusterName: "c"}, {HostPath: "/a", SHA256: "i1", ClusterName: "c"},
	}))
	records = staged(records, setOf("/a", "k1", "i1"), now)
	g.Expect(records).To(HaveEach(HaveField("StagedAt", HaveValue(Equal(now)))))
	g.Expect(staged(records, setOf("/a", "k1", "i1"), metav1.Now())).To(Equal(records), "the first time counts")

	before := append([]infrav1.HostBootArtifact(nil), records...)
	newer := intend(records, setOf("/a", "k2", "i1"), "c")
	g.Expect(records).To(Equal(before), "the caller's are left alone")
	g.Expect(newer).To(Equal([]infrav1.HostBootArtifact{
		{HostPath: "/a", SHA256: "k1", StagedAt: &now}, {HostPath: "/a", SHA256: "i1", ClusterName: "c", StagedAt: &now}, {HostPath: "/a", SHA256: "k2", ClusterName: "c"},
	}), "a kernel that was replaced is nobody's")
	g.Expect(intend(newer, setOf("/a", "k1", "i3"), "d")[:2]).To(HaveExactElements(
		HaveField("ClusterName", "d"), HaveField("ClusterName", "c")), "another cluster's files stay its own")
}

func TestWhatNoClusterWantsIsGarbage(t *testing.T) {
	cluster := func(name, path string) infrav1.LibvirtCluster {
		return infrav1.LibvirtCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: infrav1.LibvirtClusterSpec{BootArtifacts: &infrav1.BootArtifacts{HostPath: path}}}
	}
	records := []infrav1.HostBootArtifact{
		{HostPath: "/a", SHA256: "1", ClusterName: "c"}, {HostPath: "/a", SHA256: "2"}, {HostPath: "/b", SHA256: "1", ClusterName: "c"}, {HostPath: "/a", SHA256: "3", ClusterName: "d"},
	}
	for _, row := range []struct {
		name     string
		clusters []infrav1.LibvirtCluster
		want     []int
	}{
		{"without clusters, all", nil, []int{0, 1, 2, 3}},
		{"what its cluster wants elsewhere, and what was replaced", []infrav1.LibvirtCluster{cluster("c", "/a"), cluster("d", "/a")}, []int{1, 2}},
		{"of a cluster that wants none any more", []infrav1.LibvirtCluster{{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, cluster("d", "/a")}, []int{0, 1, 2}},
		{"of a cluster that has another name", []infrav1.LibvirtCluster{cluster("e", "/a")}, []int{0, 1, 2, 3}},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			var want []infrav1.HostBootArtifact
			for _, i := range row.want {
				want = append(want, records[i])
			}
			g.Expect(unwanted(records, row.clusters)).To(Equal(want))
			g.Expect(append(without(records, want), want...)).To(ConsistOf(records))
		})
	}
}

func TestProgressIsToldInPercentAndRate(t *testing.T) {
	g := NewWithT(t)
	g.Expect(describe("x", 3<<20, -1, 0)).To(Equal("x, 3 MiB"))
	g.Expect(describe("x", 1<<20, 4<<20, 0)).To(Equal("x, 25 % of 4 MiB"))
	g.Expect(describe("x", 1<<20, 4<<20, 1.5*(1<<20))).To(Equal("x, 25 % of 4 MiB at 1.5 MiB/s"))
}
