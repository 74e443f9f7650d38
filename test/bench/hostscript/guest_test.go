// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostscript

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/test/bench/host"
)

const (
	keyfilePath = "/etc/NetworkManager/system-connections/test.nmconnection"
	// keyfile has both families, by MAC address.
	keyfile = `[connection]
id=test
type=ethernet

[ethernet]
mac-address=52:54:00:00:00:07

[ipv4]
method=manual
address1=192.0.2.50/24,192.0.2.1
dns=192.0.2.2;
dns-search=example.com;

[ipv6]
method=manual
address1=2001:db8::50/64,2001:db8::1
`
)

// domain is the XML of a small machine in software emulation; devices are added to those that every one has.
func domain(name, firmware, devices string) string { return domainOf(name, firmware, 256, devices) }

func domainOf(name, firmware string, memoryMiB int, devices string) string {
	efi, features := "", ""
	if firmware == "uefi" {
		efi, features = " firmware='efi'", "<firmware><feature enabled='no' name='secure-boot'/></firmware>"
	}
	return fmt.Sprintf(`<domain type='qemu'><name>%s</name><memory unit='MiB'>%d</memory><vcpu>1</vcpu>
<os%s><type arch='x86_64' machine='q35'>hvm</type>%s<boot dev='hd'/></os><features><acpi/></features>%s</domain>`,
		name, memoryMiB, efi, features, devices)
}

// guestDevices are a root disk, a network card of the MAC address in keyfile, and a serial console whose log is at logPath.
func guestDevices(disk, network, more, logPath string) string {
	return `<devices>
<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='` + disk + `'/><target dev='vda' bus='virtio'/></disk>
` + network + `<mac address='52:54:00:00:00:07'/><model type='virtio'/></interface>` + more + `
<serial type='pty'><log file='` + logPath + `' append='off'/></serial></devices>`
}

const (
	onBridge  = "<interface type='bridge'><source bridge='br0'/>"
	onNetwork = "<interface type='network'><source network='default'/>"
)

// boot starts a machine and returns its report.
func boot(t *testing.T, h *host.Host, name, xml string) host.Report {
	t.Helper()
	g := NewWithT(t)
	g.Expect(h.WriteFile(t.Context(), "/root/vm.xml", []byte(xml))).To(Succeed())
	g.Expect(h.Run(t.Context(), "virsh", "-c", "qemu:///system", "create", "/root/vm.xml")).To(Succeed())
	started := time.Now()
	var text string
	g.Eventually(func() (string, error) {
		var err error
		text, err = h.Exec(t.Context(), "cat", "/var/log/libvirt/qemu/"+name+".log.serial")
		return text, err
	}, 5*time.Minute, 200*time.Millisecond).Should(ContainSubstring(host.Complete))
	t.Logf("%s: reported after %s", name, time.Since(started).Round(100*time.Millisecond))
	return host.ReadReport(text)
}

// rootDisk makes a disk of 1 GiB on an image of the host, and returns its path.
func rootDisk(t *testing.T, h *host.Host, name, image string) string {
	t.Helper()
	path := "/var/lib/libvirt/images/" + name + "-root.qcow2"
	NewWithT(t).Expect(h.Run(t.Context(), "qemu-img", "create", "-q", "-f", "qcow2", "-b", image, "-F", "qcow2", path, "1G")).To(Succeed())
	return path
}

func TestTheGuestReportsWhatItWasGivenAndAppliesIgnitionAndItsNetwork(t *testing.T) {
	b := newBench(t)
	image, err := host.GuestImage(t.Context(), b.repository)
	b.Expect(err).NotTo(HaveOccurred())
	h := b.up("h1")
	b.Expect(h.Copy(t.Context(), image, "/var/lib/libvirt/images/guest.qcow2")).To(Succeed())
	b.Expect(h.Run(t.Context(), "ip", "addr", "add", "192.0.2.1/24", "dev", "br0")).To(Succeed())
	b.Expect(h.Run(t.Context(), "ip", "addr", "add", "2001:db8::1/64", "dev", "br0", "nodad")).To(Succeed())

	source := "data:;base64," + base64.StdEncoding.EncodeToString([]byte(keyfile))
	v3 := `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/etc/hostname","contents":{"source":"data:,node3"}},
{"path":"` + keyfilePath + `","mode":384,"contents":{"source":"` + source + `"}}]}}`
	v2 := `{"ignition":{"version":"2.2.0"},"storage":{"files":[{"filesystem":"root","path":"/etc/hostname","mode":420,"contents":{"source":"data:,node2"}},
{"filesystem":"root","path":"` + keyfilePath + `","mode":384,"contents":{"source":"` + source + `"}}]}}`

	for _, row := range []struct{ name, firmware, firmwareSays, network, config, ignition, hostname string }{
		{"uefi", "uefi", "FW=UEFI", onBridge, v3, "version=3.2.0 program=2.14.0", "node3"},
		{"bios", "bios", "FW=BIOS", onNetwork, v2, "version=2.2.0 program=0.35.0", "node2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			config := "/var/lib/libvirt/" + row.name + ".ign"
			g.Expect(h.WriteFile(t.Context(), config, []byte(row.config))).To(Succeed())
			devices := guestDevices(rootDisk(t, h, row.name, "guest.qcow2"), row.network, "", "/var/log/libvirt/qemu/"+row.name+".log.serial")
			report := boot(t, h, row.name, domain(row.name, row.firmware, devices+
				`<sysinfo type='fwcfg'><entry name='opt/com.coreos/config' file='`+config+`'/></sysinfo>`))
			g.Expect(report[:8]).To(HaveExactElements(
				Equal(row.firmwareSays),
				Equal(fmt.Sprintf("FWCFG bytes=%d sha256=%x", len(row.config), sha256.Sum256([]byte(row.config)))),
				MatchRegexp("^CMDLINE .* console=ttyS0 "),
				Equal("DISK vda bytes=1073741824"),
				Equal("ROOT vda"),
				Equal("NET eth0 mac=52:54:00:00:00:07"),
				MatchRegexp(`^MEM kB=2[0-9]{5}$`),
				Equal("CPUS 1"),
			))
			g.Expect(report.Of("IGN")).To(ConsistOf(And(HavePrefix(row.ignition), HaveSuffix(" ok"))), "%q", report)
			g.Expect(report.Of("HOSTNAME")).To(Equal([]string{row.hostname}))
			expectFile(g, report, keyfilePath, "600", keyfile)
			g.Expect(report.Of("NM")).To(Equal([]string{"ok"}), "%q", report)
			g.Expect(report.Of("ADDR")).To(ContainElements("eth0 192.0.2.50/24", "eth0 2001:db8::50/64"))
			g.Expect(report.Of("ROUTE")).To(ContainElements(HavePrefix("default via 192.0.2.1 dev eth0"), HavePrefix("default via 2001:db8::1 dev eth0")))
			g.Expect(report.Of("DNS")).To(ConsistOf("nameserver 192.0.2.2", "search example.com"))
			if row.network == onBridge {
				for _, address := range []string{"192.0.2.50", "2001:db8::50"} {
					g.Expect(h.InNetwork(t.Context(), "busybox", "ping", "-c", "1", "-W", "20", address)).To(Succeed())
				}
			}
			g.Expect(h.Run(t.Context(), "virsh", "-c", "qemu:///system", "destroy", row.name)).To(Succeed())
		})
	}
}

// expectFile checks a file that was written while the guest was configured.
func expectFile(g *WithT, report host.Report, path, mode, content string) {
	files, err := report.Files()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).To(HaveKey(path), "%q", report)
	g.Expect(files[path].Content).To(Equal(content))
	g.Expect(files[path].Mode).To(Equal(mode))
}

func TestTheCloudInitGuestAppliesANoCloudDiskAndSeesDisksOfEveryBus(t *testing.T) {
	b := newBench(t)
	image, err := host.CloudInitGuestImage(t.Context(), b.repository)
	b.Expect(err).NotTo(HaveOccurred())
	h := b.up("h1")
	b.Expect(h.Copy(t.Context(), image, "/var/lib/libvirt/images/guest.qcow2")).To(Succeed())
	// A NoCloud disk may be a FAT file system as well as an ISO image, and this machine has the tools to make one.
	dir := t.TempDir()
	for name, content := range map[string]string{
		"meta-data": "instance-id: one\nlocal-hostname: node4\n",
		"user-data": "#cloud-config\nwrite_files:\n- path: /etc/written\n  content: by cloud-init\n  permissions: '0640'\nruncmd:\n- echo ran >/etc/ran\n",
		"network-config": "version: 2\nethernets:\n  nic:\n    match: {macaddress: '52:54:00:00:00:07'}\n    addresses: [192.0.2.60/24]\n" +
			"    gateway4: 192.0.2.1\n    nameservers: {addresses: [192.0.2.2], search: [example.com]}\n",
	} {
		b.Expect(os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600)).To(Succeed())
	}
	mkfs := exec.CommandContext(t.Context(), "sh", "-ec", `PATH=$PATH:/usr/sbin:/sbin; truncate -s 1M nocloud; mkfs.vfat -n CIDATA nocloud
mcopy -oi nocloud meta-data user-data network-config ::`)
	mkfs.Dir = dir
	out, err := mkfs.CombinedOutput()
	b.Expect(err).NotTo(HaveOccurred(), string(out))
	b.Expect(h.Copy(t.Context(), filepath.Join(dir, "nocloud"), "/var/lib/libvirt/images/nocloud")).To(Succeed())
	b.Expect(h.Run(t.Context(), "sh", "-ec", "cd /var/lib/libvirt/images; for name in first second third; do truncate -s 16M $name; done")).To(Succeed())

	more := "<controller type='scsi' model='virtio-scsi'/>" + strings.Join([]string{
		rawDisk("nocloud", "<target dev='vdb' bus='virtio'/><readonly/>"),
		rawDisk("first", "<target dev='vdc' bus='virtio'/><serial>on-virtio</serial>"),
		rawDisk("second", "<target dev='sda' bus='scsi'/><serial>on-scsi</serial>"),
		rawDisk("third", "<target dev='sdb' bus='sata'/><serial>on-sata</serial>"),
	}, "")
	devices := guestDevices(rootDisk(t, h, "cloud", "guest.qcow2"), onNetwork, more, "/var/log/libvirt/qemu/cloud.log.serial")
	report := boot(t, h, "cloud", domainOf("cloud", "bios", 512, devices))

	b.Expect(report.Of("ROOT")).To(Equal([]string{"vda"}))
	// Which of two SCSI controllers is first is the kernel's choice.
	b.Expect(report.Of("DISK")).To(ContainElements("vda bytes=1073741824", "vdc serial=on-virtio bytes=16777216",
		MatchRegexp("^sd[ab] serial=on-scsi bytes=16777216$"), MatchRegexp("^sd[ab] serial=on-sata bytes=16777216$")))
	b.Expect(report.Of("DISK-IO")).To(ConsistOf("vdc ok", "sda ok", "sdb ok"))
	b.Expect(report.Of("CIDATA")).To(Equal([]string{"device=vdb"}))
	b.Expect(report.Of("CIDATA-FILE")).To(ContainElement(HavePrefix("name=meta-data bytes=39 sha256=")))
	b.Expect(report.Of("CLOUD-INIT")).To(Equal([]string{"ok"}), "%q", report)
	b.Expect(report.Of("HOSTNAME")).To(Equal([]string{"node4"}))
	expectFile(b.WithT, report, "/etc/written", "640", "by cloud-init")
	expectFile(b.WithT, report, "/etc/ran", "644", "ran\n")
	b.Expect(report.Of("NM")).To(Equal([]string{"ok"}), "%q", report)
	b.Expect(report.Of("ADDR")).To(ContainElement("eth0 192.0.2.60/24"))
	b.Expect(report.Of("DNS")).To(ConsistOf("nameserver 192.0.2.2", "search example.com"))
}

func rawDisk(name, more string) string {
	return "<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='/var/lib/libvirt/images/" + name + "'/>" + more + "</disk>"
}
