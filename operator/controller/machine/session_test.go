// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

func TestDescribeFollowsTheModeOfTheHost(t *testing.T) {
	for _, row := range []struct {
		name, uri   string
		network     infrav1.NetworkType
		wantSerial  string
		wantBlocked string
	}{
		{"the system daemon logs in its own directory", "qemu+ssh://caplv@h/system", infrav1.NetworkTypeBridge, "/var/log/libvirt/qemu/vm-serial.log", ""},
		{"the system daemon has networks", "qemu+ssh://caplv@h/system", infrav1.NetworkTypeNetwork, "/var/log/libvirt/qemu/vm-serial.log", ""},
		{"a session logs in the machine's directory", "qemu+ssh://caplv@h/session", infrav1.NetworkTypeBridge, "/run/caplv/vm/serial.log", ""},
		{"a session has no networks", "qemu+ssh://caplv@h/session", infrav1.NetworkTypeNetwork, "", infrav1.NetworkTypeUnsupportedReason},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			d := Desired{Name: "vm", RootPool: "default", RootVolume: "vm-root.qcow2"}
			lm := &infrav1.LibvirtMachine{Spec: infrav1.LibvirtMachineSpec{
				Domain:   infrav1.DomainSpec{VCPUs: ptr.To[int32](1), MemoryMB: ptr.To[int32](256)},
				RootDisk: infrav1.RootDiskSpec{Size: resource.MustParse("1Gi"), StoragePool: "default", BaseImage: "base.qcow2"},
				Network:  infrav1.NetworkSpec{Type: row.network, Name: "br0"},
			}}
			lh := &infrav1.LibvirtHost{Spec: infrav1.LibvirtHostSpec{URI: row.uri},
				Status: infrav1.LibvirtHostStatus{Capacity: &infrav1.HostCapacity{TotalVCPUs: 2, TotalMemoryMB: 1024, AvailableVCPUs: 2, AvailableMemoryMB: 1024}}}
			blocked := describe(&d, lm, lh)
			g.Expect(d.Domain.SerialLogPath).To(Equal(row.wantSerial))
			if row.wantBlocked == "" {
				g.Expect(blocked).To(BeNil())
				return
			}
			g.Expect(blocked).To(HaveField("Reason", row.wantBlocked))
			g.Expect(blocked.Message).To(ContainSubstring("use network.type bridge"))
		})
	}
}
