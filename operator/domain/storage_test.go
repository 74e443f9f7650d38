// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package domain_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/domain"
)

func TestPool(t *testing.T) {
	for _, row := range []struct{ name, file, pool, target string }{
		{"a directory", "pool.xml", "default-prod-worker01", "/run/caplv/default-prod-worker01"},
		{"a name and path with a meaning in XML", "pool-escaped.xml", "a&b", "/run/a&b c"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			xml, err := domain.PoolXML(row.pool, domain.PoolUUID(uid), row.target)
			g.Expect(err).NotTo(HaveOccurred())
			golden(g, row.file, xml)
			g.Expect(domain.ParsePool(xml)).To(Equal(domain.ObservedPool{Name: row.pool, UUID: domain.PoolUUID(uid), TargetPath: row.target}))
		})
	}
}

func TestAPoolThatNoHostWouldAcceptIsRefused(t *testing.T) {
	for _, row := range []struct{ name, pool, uuid, target, message string }{
		{"no name", "", domain.PoolUUID(uid), "/x", "the name is empty"},
		{"no UUID", "a", "", "/x", "the UUID"},
		{"no path", "a", domain.PoolUUID(uid), "", "the target path is empty"},
		{"a path of two lines", "a", domain.PoolUUID(uid), "/x\n/y", "not printable"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := domain.PoolXML(row.pool, row.uuid, row.target)
			g.Expect(err).To(MatchError(ContainSubstring(row.message)))
		})
	}
}

func TestVolume(t *testing.T) {
	for _, row := range []struct {
		name, file string
		spec       domain.VolumeSpec
	}{
		{"an overlay", "volume-overlay.xml", domain.VolumeSpec{
			Name: "default-prod-worker01-root.qcow2", CapacityBytes: 100 << 30,
			Backing: &domain.Backing{Path: "/var/lib/libvirt/images/rhcos.qcow2", Format: "qcow2"},
		}},
		{"a copy", "volume-copy.xml", domain.VolumeSpec{Name: "default-prod-worker01-root.qcow2", CapacityBytes: 100 << 30}},
		{"an empty volume", "volume.xml", domain.VolumeSpec{Name: "data.qcow2", CapacityBytes: 1<<63 + 512}},
		{"names with a meaning in XML", "volume-escaped.xml", domain.VolumeSpec{
			Name: "a&b.qcow2", CapacityBytes: 512, Backing: &domain.Backing{Path: "/images/<a> & b.raw", Format: "raw"},
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			xml, err := domain.VolumeXML(row.spec)
			g.Expect(err).NotTo(HaveOccurred())
			golden(g, row.file, xml)
		})
	}
}

func TestAVolumeThatNoHostWouldAcceptIsRefused(t *testing.T) {
	for _, row := range []struct {
		name    string
		spec    domain.VolumeSpec
		message string
	}{
		{"no name", domain.VolumeSpec{CapacityBytes: 1}, "the name is empty"},
		{"a name that leads out of the pool", domain.VolumeSpec{Name: "../a", CapacityBytes: 1}, "slash"},
		{"no capacity", domain.VolumeSpec{Name: "a"}, "0 bytes"},
		{"a backing image without path", domain.VolumeSpec{Name: "a", CapacityBytes: 1, Backing: &domain.Backing{Format: "raw"}}, "path is empty"},
		{"a backing image without format", domain.VolumeSpec{Name: "a", CapacityBytes: 1, Backing: &domain.Backing{Path: "/a"}}, "format is empty"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := domain.VolumeXML(row.spec)
			g.Expect(err).To(MatchError(ContainSubstring(row.message)))
		})
	}
}
