// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

func TestAGuestReceivesExactlyItsConfigAndLeavesNoTrace(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name    string
		want    string
		prepare func(*infrav1.LibvirtMachineSpec)
	}{
		{"UEFI, on a storage pool of the host, on a bridge", "FW=UEFI", func(s *infrav1.LibvirtMachineSpec) {
			s.Domain.Firmware = infrav1.FirmwareUEFI
		}},
		{"UEFI, on tmpfs, on a bridge", "FW=UEFI", func(s *infrav1.LibvirtMachineSpec) {
			s.Domain.Firmware = infrav1.FirmwareUEFI
			ephemeral(s)
		}},
		{"BIOS, on a storage pool of the host, on a libvirt network", "FW=BIOS", func(s *infrav1.LibvirtMachineSpec) {
			s.Network.Type, s.Network.Name = infrav1.NetworkTypeNetwork, "default"
		}},
		{"BIOS, on tmpfs, on a bridge", "FW=BIOS", ephemeral},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			w.expectHost("True/HostReady")

			lm := w.libvirtMachine("worker01")
			lm.Spec.IgnitionDelivery = infrav1.IgnitionDeliveryPlain
			row.prepare(&lm.Spec)
			w.createMachine(lm)
			lm = w.expectMachine("worker01", infrav1.MachineReadyCondition, "True/Running")
			w.checkStatus(lm)
			w.checkHostFiles(lm)

			report := w.report(lm.Status.NodeName)
			w.g.Expect(report["FW"]).To(Equal(row.want))
			w.checkConfig(lm, report["FWCFG"])
			w.g.Expect(report["DISK"]).To(Equal("DISK vda bytes=1073741824"))
			w.g.Expect(report["CPUS"]).To(Equal("CPUS 1"))

			w.deleteMachine("worker01")
			w.expectGone("worker01")
			w.expectListing(w.untouched)
		})
	}
}

func ephemeral(s *infrav1.LibvirtMachineSpec) {
	s.RootDisk.EphemeralPool = true
	s.RootDisk.EphemeralPoolSize = "256M"
	s.RootDisk.BaseImagePool = "default"
}

// checkStatus checks what Cluster API and users read.
func (w *world) checkStatus(lm *infrav1.LibvirtMachine) {
	node := w.nodeName(lm.Name)
	w.g.Expect(lm.Status.NodeName).To(Equal(node))
	w.g.Expect(lm.Status.DomainState).To(Equal("running"))
	w.g.Expect(lm.Status.VCPUs).To(Equal(int32(1)))
	w.g.Expect(lm.Status.MemoryMB).To(Equal(int32(256)))
	w.g.Expect(lm.Status.Initialization.Provisioned).To(HaveValue(BeTrue()))
	w.g.Expect(lm.Spec.ProviderID).To(Equal("libvirt://host/" + lm.Status.DomainUUID))
	w.g.Expect(lm.Status.Addresses).To(ConsistOf(
		clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: "192.0.2.50"},
		clusterv1.MachineAddress{Type: clusterv1.MachineHostName, Address: node},
		clusterv1.MachineAddress{Type: clusterv1.MachineInternalDNS, Address: node},
	))
	w.g.Eventually(func(g Gomega) {
		m := &clusterv1.Machine{}
		g.Expect(suite.cp.Client().Get(w.t.Context(), client.ObjectKeyFromObject(lm), m)).To(Succeed())
		g.Expect(m.Spec.ProviderID).To(Equal(lm.Spec.ProviderID))
		g.Expect(condition(m, clusterv1.InfrastructureReadyCondition)).To(Equal("True/Running"))
	}, provisionTime, poll).Should(Succeed(), "Cluster API did not take the machine over")
	row, err := suite.cp.Kubectl(w.t.Context(), "-n", w.namespace, "get", "lvm", lm.Name, "--no-headers")
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(row).To(MatchRegexp(`worker01\s+host\s+Running\s+True\s+` + node))
}

// checkHostFiles checks that the config is private, and that a machine on tmpfs touches no other file system.
func (w *world) checkHostFiles(lm *infrav1.LibvirtMachine) {
	mode, err := w.host.Exec(w.t.Context(), "stat", "-c", "%a", "/run/caplv/"+lm.Status.NodeName+"/ignition.json")
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(mode).To(Equal("600\n"))
	fs, err := w.host.Exec(w.t.Context(), "stat", "-f", "-c", "%T %b*%S", "/run/caplv/"+lm.Status.NodeName)
	w.g.Expect(err).NotTo(HaveOccurred())
	if lm.Spec.RootDisk.EphemeralPool {
		w.g.Expect(fs).To(Equal("tmpfs 65536*4096\n"), "the tmpfs does not have the size of 256M")
		disk, err := w.host.Exec(w.t.Context(), "virsh", "-c", "qemu:///system", "vol-path", "--pool", lm.Status.NodeName, lm.Status.NodeName+"-root.qcow2")
		w.g.Expect(err).NotTo(HaveOccurred())
		w.g.Expect(disk).To(ContainSubstring("/run/caplv/" + lm.Status.NodeName + "/"))
	}
}

// checkConfig compares what the guest read with what lies on the host, and that with what the operator was given.
func (w *world) checkConfig(lm *infrav1.LibvirtMachine, line string) {
	config, err := w.host.Exec(w.t.Context(), "cat", "/run/caplv/"+lm.Status.NodeName+"/ignition.json")
	w.g.Expect(err).NotTo(HaveOccurred())
	digest := sha256.Sum256([]byte(config))
	w.g.Expect(line).To(Equal(fmt.Sprintf("FWCFG bytes=%d sha256=%s", len(config), hex.EncodeToString(digest[:]))))

	var parsed struct {
		Ignition struct{ Version string }
		Storage  struct {
			Files []struct{ Path string }
		}
		Systemd struct {
			Units []struct {
				Name    string
				Dropins []struct{ Contents string }
			}
		}
	}
	w.g.Expect(json.Unmarshal([]byte(config), &parsed)).To(Succeed())
	w.g.Expect(parsed.Ignition.Version).To(Equal("3.2.0"))
	var paths []string
	for _, f := range parsed.Storage.Files {
		paths = append(paths, f.Path)
	}
	w.g.Expect(paths).To(ContainElements("/etc/marker", "/etc/hostname", "/etc/NetworkManager/system-connections/caplv.nmconnection"))
	w.g.Expect(parsed.Systemd.Units).To(HaveLen(1))
	w.g.Expect(parsed.Systemd.Units[0].Name).To(Equal("kubelet.service"))
	w.g.Expect(parsed.Systemd.Units[0].Dropins[0].Contents).To(ContainSubstring(`"KUBELET_PROVIDERID=` + lm.Spec.ProviderID + `"`))
}

func TestAMachineOfTheSameNameCanBeCreatedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.expectHost("True/HostReady")
	var ids []string
	for range 2 {
		lm := w.libvirtMachine("worker01")
		ephemeral(&lm.Spec)
		w.createMachine(lm)
		ids = append(ids, w.expectMachine("worker01", infrav1.MachineReadyCondition, "True/Running").Spec.ProviderID)
		w.g.Expect(w.eventReasons("LibvirtMachine", "worker01")).To(ContainElement("Running"))
		w.deleteMachine("worker01")
		w.expectGone("worker01")
		w.expectListing(w.untouched)
	}
	w.g.Expect(ids[0]).NotTo(Equal(ids[1]), "two incarnations share a provider ID")
}

func TestAMachineWithoutSizesGetsWhatTheHostHasAvailable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lh := w.expectHost("True/HostReady")
	base := lh.DeepCopy()
	lh.Spec.ReservedResources.VCPUs = new(lh.Status.Capacity.TotalVCPUs - 1)
	lh.Spec.ReservedResources.MemoryMB = new(lh.Status.Capacity.TotalMemoryMB - 300)
	w.g.Expect(suite.cp.Client().Patch(t.Context(), lh, client.MergeFrom(base))).To(Succeed())
	w.g.Eventually(func(g Gomega) {
		g.Expect(suite.cp.Client().Get(t.Context(), client.ObjectKeyFromObject(lh), lh)).To(Succeed())
		g.Expect(lh.Status.Capacity.AvailableMemoryMB).To(Equal(int32(300)))
	}, provisionTime, poll).Should(Succeed())

	lm := w.libvirtMachine("worker01")
	lm.Spec.Domain.VCPUs, lm.Spec.Domain.MemoryMB = nil, nil
	lm.Spec.RootDisk.Size = resource.MustParse("512Mi")
	w.createMachine(lm)
	lm = w.expectMachine("worker01", infrav1.MachineReadyCondition, "True/Running")
	w.g.Expect(lm.Status.VCPUs).To(Equal(int32(1)))
	w.g.Expect(lm.Status.MemoryMB).To(Equal(int32(300)))
	w.deleteMachine("worker01")
	w.expectGone("worker01")
}

func TestAForeignDomainOfTheSameNameIsNeverTouched(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(w *world) {
		foreign := `<domain type='qemu'><name>` + w.nodeName("worker01") + `</name><memory unit='MiB'>128</memory><vcpu>1</vcpu><os><type arch='x86_64' machine='q35'>hvm</type></os></domain>`
		w.g.Expect(w.host.WriteFile(w.t.Context(), "/root/foreign.xml", []byte(foreign))).To(Succeed())
		w.g.Expect(w.host.Run(w.t.Context(), "virsh", "-c", "qemu:///system", "define", "/root/foreign.xml")).To(Succeed())
	})
	w.createMachine(w.libvirtMachine("worker01"))
	w.expectMachine("worker01", infrav1.DomainRunningCondition, "False/"+infrav1.DomainAlreadyExistsReason)
	w.expectMachine("worker01", infrav1.MachineReadyCondition, "False/"+infrav1.DomainAlreadyExistsReason)
	w.deleteMachine("worker01")
	w.expectGone("worker01")
	w.expectListing(w.untouched)
}
