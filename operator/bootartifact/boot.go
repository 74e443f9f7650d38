// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bootartifact brings the kernel and the initramfs of a LibvirtCluster to hosts: it has them fetched once, has each host's helper keep them under
// their digests, and removes those that no cluster wants any more.
package bootartifact

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/hostctl"
)

// Set is a kernel and an initramfs on a host.
type Set struct {
	Kernel, Initramfs hostctl.BootFile
}

// Error is why boot artifacts are not on a host, as the reason and the message of a condition.
type Error struct {
	Reason  string
	Message string
}

func (e *Error) Error() string { return e.Message }

// HostPath is where a cluster wants its boot artifacts.
func HostPath(boot *infrav1.BootArtifacts) string {
	if boot.HostPath == "" {
		return "/var/lib/caplv/boot"
	}
	return boot.HostPath
}

// keyOf names what is brought where: equal for all that asks for the same, on the same host.
func keyOf(lh *infrav1.LibvirtHost, lc *infrav1.LibvirtCluster) (string, error) {
	// The command line is no part of it.
	source, err := json.Marshal(lc.Spec.BootArtifacts.Source)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", []string{HostPath(lc.Spec.BootArtifacts), lc.Namespace, lc.Name, string(source)}))
	return fmt.Sprintf("boot-artifacts/%s/%s", lh.UID, hex.EncodeToString(sum[:])), nil
}

// intend adds the files of a set to a host's records, before anything of them is there. What the cluster wanted before is its last machine's alone from
// now on.
func intend(records []infrav1.HostBootArtifact, set Set, cluster string) []infrav1.HostBootArtifact {
	records = slices.Clone(records)
	for i := range records {
		if records[i].ClusterName == cluster && !set.has(records[i]) {
			records[i].ClusterName = ""
		}
	}
	for _, f := range []hostctl.BootFile{set.Kernel, set.Initramfs} {
		i := slices.IndexFunc(records, func(r infrav1.HostBootArtifact) bool { return is(r, f) })
		if i < 0 {
			records, i = append(records, infrav1.HostBootArtifact{HostPath: f.Dir, SHA256: infrav1.SHA256(f.SHA256)}), len(records)
		}
		records[i].ClusterName = cluster
	}
	return records
}

// staged notes that the files of a set are on the host.
func staged(records []infrav1.HostBootArtifact, set Set, now metav1.Time) []infrav1.HostBootArtifact {
	records = slices.Clone(records)
	for i := range records {
		if set.has(records[i]) && records[i].StagedAt == nil {
			records[i].StagedAt = &now
		}
	}
	return records
}

// unwanted are the records of files that none of the clusters wants, which are those of one namespace.
func unwanted(records []infrav1.HostBootArtifact, clusters []infrav1.LibvirtCluster) []infrav1.HostBootArtifact {
	wanted := map[[2]string]bool{}
	for i := range clusters {
		if lc := &clusters[i]; lc.Spec.BootArtifacts != nil {
			wanted[[2]string{lc.Name, HostPath(lc.Spec.BootArtifacts)}] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(records), func(r infrav1.HostBootArtifact) bool { return wanted[[2]string{r.ClusterName, r.HostPath}] })
}

// without returns the records without those of files that were removed.
func without(records, removed []infrav1.HostBootArtifact) []infrav1.HostBootArtifact {
	return slices.DeleteFunc(slices.Clone(records), func(r infrav1.HostBootArtifact) bool {
		return slices.ContainsFunc(removed, func(gone infrav1.HostBootArtifact) bool {
			return gone.HostPath == r.HostPath && gone.SHA256 == r.SHA256
		})
	})
}

func (s Set) has(r infrav1.HostBootArtifact) bool { return is(r, s.Kernel) || is(r, s.Initramfs) }

func is(r infrav1.HostBootArtifact, f hostctl.BootFile) bool {
	return r.HostPath == f.Dir && string(r.SHA256) == f.SHA256
}
