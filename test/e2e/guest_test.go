// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/test/bench/host"
)

const (
	cloudInitImageName = "guest-cloudinit.qcow2"
	pingTime           = 30 * time.Second

	ignition2 = `{"ignition":{"version":"2.2.0"},"storage":{"files":[{"filesystem":"root","path":"/etc/marker","mode":420,` +
		`"contents":{"source":"data:,e2e"}},{"filesystem":"root","path":"/etc/kubernetes/kubelet-env","mode":420,` +
		`"contents":{"source":"data:,KUBELET_LOG_LEVEL=2%0A"}}]}}`
	cloudConfig = "#cloud-config\nwrite_files:\n- path: /etc/marker\n  content: e2e\nruncmd:\n- echo ran >/etc/ran\n"
)

// guestRow is one machine: what its spec says, and what its guest must say.
type guestRow struct {
	name, bootstrapData string
	prepare             func(*infrav1.LibvirtMachineSpec)
	// program is the beginning of what the guest says of the program that has applied the config.
	program        string
	addresses, dns []string
	routes, disks  []string
	pinged         []string
	// unusedFamily is in every address of the family that the machine must not have.
	unusedFamily string
}

var guestRows = []guestRow{
	{
		name: "compact3", bootstrapData: ignition,
		prepare: func(s *infrav1.LibvirtMachineSpec) {
			s.IgnitionDelivery = infrav1.IgnitionDeliveryCompact
			s.Network.DNS.SearchDomains = []infrav1.DNSDomain{"example.com"}
			s.AdditionalDisks = []infrav1.AdditionalDiskSpec{dataDisk("data", "32Mi", "virtio"), dataDisk("logs", "48Mi", "virtio")}
		},
		program:   "version=3.2.0 ",
		addresses: []string{"eth0 192.0.2.50/24"}, unusedFamily: ":",
		routes: []string{"default via 192.0.2.1 dev eth0"},
		dns:    []string{"nameserver 192.0.2.1", "search example.com"},
		disks:  []string{"serial=data bytes=33554432", "serial=logs bytes=50331648"},
		pinged: []string{"192.0.2.50"},
	},
	{
		name: "plain3", bootstrapData: ignition,
		prepare: func(s *infrav1.LibvirtMachineSpec) {
			s.IgnitionDelivery = infrav1.IgnitionDeliveryPlain
			s.Domain.Firmware = infrav1.FirmwareUEFI
			s.RootDisk.Bus = "scsi"
			s.Network.Addresses, s.Network.Gateway = []infrav1.AddressCIDR{"2001:db8::50/64"}, "2001:db8::1"
			s.Network.DNS.Nameservers = []infrav1.IPAddress{"2001:db8::1"}
		},
		program:   "version=3.2.0 ",
		addresses: []string{"eth0 2001:db8::50/64"}, unusedFamily: "192.0.2.",
		routes: []string{"default via 2001:db8::1 dev eth0"},
		dns:    []string{"nameserver 2001:db8::1"},
		pinged: []string{"2001:db8::50"},
	},
	{
		name: "ignition2", bootstrapData: ignition2,
		prepare: func(s *infrav1.LibvirtMachineSpec) {
			dualStack(s)
			s.AdditionalDisks = []infrav1.AdditionalDiskSpec{dataDisk("data", "32Mi", "virtio"), dataDisk("logs", "48Mi", "scsi")}
		},
		program:   "version=2.",
		addresses: []string{"eth0 192.0.2.50/24", "eth0 2001:db8::50/64"},
		routes:    []string{"default via 192.0.2.1 dev eth0", "default via 2001:db8::1 dev eth0"},
		dns:       []string{"nameserver 192.0.2.1", "nameserver 2001:db8::1"},
		disks:     []string{"serial=data bytes=33554432", "serial=logs bytes=50331648"},
		pinged:    []string{"192.0.2.50", "2001:db8::50"},
	},
	{
		name: "cloud-init", bootstrapData: cloudConfig,
		prepare: func(s *infrav1.LibvirtMachineSpec) {
			dualStack(s)
			s.BootstrapFormat = infrav1.BootstrapFormatCloudInit
			s.Domain.MemoryMB, s.RootDisk.BaseImage = ptr.To[int32](512), cloudInitImageName
			s.AdditionalDisks = []infrav1.AdditionalDiskSpec{dataDisk("data", "32Mi", "sata")}
		},
		addresses: []string{"eth0 192.0.2.50/24", "eth0 2001:db8::50/64"},
		routes:    []string{"default via 192.0.2.1 dev eth0", "default via 2001:db8::1 dev eth0"},
		dns:       []string{"nameserver 192.0.2.1", "nameserver 2001:db8::1"},
		disks:     []string{"serial=data bytes=33554432"},
		pinged:    []string{"192.0.2.50", "2001:db8::50"},
	},
}

func dualStack(s *infrav1.LibvirtMachineSpec) {
	s.Network.Addresses = []infrav1.AddressCIDR{"192.0.2.50/24", "2001:db8::50/64"}
	s.Network.IPv6Gateway = "2001:db8::1"
	s.Network.DNS.Nameservers = []infrav1.IPAddress{"192.0.2.1", "2001:db8::1"}
}

func dataDisk(name, size string, bus infrav1.DiskBus) infrav1.AdditionalDiskSpec {
	return infrav1.AdditionalDiskSpec{Name: name, Size: resource.MustParse(size), StoragePool: "default", Bus: bus}
}

// TestGuestsProveWhatTheyReceived boots one machine after the other on one host. The guests apply what they get with the
// programs of real machines: Ignition, cloud-init, NetworkManager.
func TestGuestsProveWhatTheyReceived(t *testing.T) {
	t.Parallel()
	all := newWorld(t, func(w *world) {
		image, err := host.CloudInitGuestImage(t.Context(), suite.repository)
		w.g.Expect(err).NotTo(HaveOccurred())
		w.g.Expect(w.host.Copy(t.Context(), image, "/var/lib/libvirt/images/"+cloudInitImageName)).To(Succeed())
		w.g.Expect(w.host.Run(t.Context(), "virsh", "-c", "qemu:///system", "pool-refresh", "default")).To(Succeed())
		// The host is the machines' gateway, in both families.
		w.g.Expect(w.host.Run(t.Context(), "ip", "addr", "add", "192.0.2.1/24", "dev", "br0")).To(Succeed())
		w.g.Expect(w.host.Run(t.Context(), "ip", "addr", "add", "2001:db8::1/64", "dev", "br0", "nodad")).To(Succeed())
	})
	all.expectHost("True/HostReady")
	for _, row := range guestRows {
		t.Run(row.name, func(t *testing.T) {
			w := *all
			w.t, w.g = t, NewWithT(t)
			t.Cleanup(w.deleteMachines)
			lm := w.libvirtMachine(row.name)
			row.prepare(&lm.Spec)
			w.createMachineWith(lm, row.bootstrapData)
			lm = w.expectMachine(row.name, infrav1.MachineReadyCondition, "True/Running")
			report := w.fullReport(lm.Status.NodeName)
			w.checkIdentity(row, lm, report)
			w.checkNetwork(row, report)
			w.checkDisks(row, report)
			w.deleteMachine(row.name)
			w.expectGone(row.name)
			w.expectListing(w.untouched)
		})
	}
}

// checkIdentity checks that the guest has the bootstrap data's own file, and what makes it this machine.
func (w *world) checkIdentity(row guestRow, lm *infrav1.LibvirtMachine, report host.Report) {
	w.t.Helper()
	files, err := report.Files()
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(report.Of("HOSTNAME")).To(Equal([]string{lm.Status.NodeName}), "%q", report)
	w.g.Expect(strings.TrimSpace(files["/etc/marker"].Content)).To(Equal("e2e"), "%q", report)
	dropin := files["/etc/systemd/system/kubelet.service.d/10-caplv-provider-id.conf"]
	w.g.Expect(dropin.Content).To(ContainSubstring(`"KUBELET_PROVIDERID=`+lm.Spec.ProviderID+`"`), "%q", report)
	if lm.Spec.BootstrapFormat == infrav1.BootstrapFormatCloudInit {
		w.g.Expect(report.Of("CLOUD-INIT")).To(Equal([]string{"ok"}), "%q", report)
		w.g.Expect(report.Of("FWCFG")).To(Equal([]string{"none"}))
		w.g.Expect(files["/etc/ran"].Content).To(Equal("ran\n"))
		return
	}
	w.g.Expect(report.Of("IGN")).To(ConsistOf(And(HavePrefix(row.program), HaveSuffix(" ok"))), "%q", report)
	w.g.Expect(report.Of("CIDATA")).To(BeEmpty())
	keyfile := files["/etc/NetworkManager/system-connections/caplv.nmconnection"]
	w.g.Expect(keyfile.Mode).To(Equal("600"))
	env := files["/etc/kubernetes/kubelet-env"].Content
	w.g.Expect(env).To(ContainSubstring("KUBELET_PROVIDERID="))
	w.g.Expect(env).To(ContainSubstring(lm.Spec.ProviderID))
	if row.bootstrapData == ignition2 {
		w.g.Expect(env).To(ContainSubstring("KUBELET_LOG_LEVEL=2\n"), "the config's own variables are lost")
	}
}

// checkNetwork checks that the guest has the addresses of its spec and none but them, and that they answer.
func (w *world) checkNetwork(row guestRow, report host.Report) {
	w.t.Helper()
	w.g.Expect(report.Of("NM")).To(Equal([]string{"ok"}), "%q", report)
	var addresses []string
	for _, address := range report.Of("ADDR") {
		if !strings.Contains(address, " fe80:") {
			addresses = append(addresses, address)
		}
	}
	w.g.Expect(addresses).To(ConsistOf(row.addresses))
	if row.unusedFamily != "" {
		w.g.Expect(report.Of("ADDR")).NotTo(ContainElement(ContainSubstring(row.unusedFamily)))
	}
	for _, route := range row.routes {
		w.g.Expect(report.Of("ROUTE")).To(ContainElement(HavePrefix(route)))
	}
	w.g.Expect(report.Of("DNS")).To(ConsistOf(row.dns))
	for _, address := range row.pinged {
		// The host may remember the MAC address of an earlier machine with this address, and takes a while to ask again.
		w.g.Eventually(func() error {
			return w.host.InNetwork(w.t.Context(), "busybox", "ping", "-c", "1", "-W", "2", address)
		}, pingTime, poll).Should(Succeed(), "%s does not answer", address)
	}
}

// checkDisks checks that the root disk has grown to its size, and that the data disks have their serials and keep data.
func (w *world) checkDisks(row guestRow, report host.Report) {
	w.t.Helper()
	root := report.Of("ROOT")
	w.g.Expect(root).To(HaveLen(1))
	w.g.Expect(report.Of("DISK")).To(ContainElement(And(HavePrefix(root[0]+" "), HaveSuffix(" bytes=1073741824"))))
	for _, disk := range row.disks {
		w.g.Expect(report.Of("DISK")).To(ContainElement(HaveSuffix(" "+disk)), "%q", report)
	}
	tried := report.Of("DISK-IO")
	w.g.Expect(tried).To(HaveLen(len(row.disks)))
	for _, disk := range tried {
		w.g.Expect(disk).To(HaveSuffix(" ok"))
	}
}
