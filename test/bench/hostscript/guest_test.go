// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostscript

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/test/bench/host"
)

// domain is the XML of a small machine in software emulation; devices are added to those that every one has.
func domain(name, firmware, devices string) string {
	efi, features := "", ""
	if firmware == "uefi" {
		efi, features = " firmware='efi'", "<firmware><feature enabled='no' name='secure-boot'/></firmware>"
	}
	return fmt.Sprintf(`<domain type='qemu'><name>%s</name><memory unit='MiB'>256</memory><vcpu>1</vcpu>
<os%s><type arch='x86_64' machine='q35'>hvm</type>%s<boot dev='hd'/></os><features><acpi/></features>%s</domain>`, name, efi, features, devices)
}

func TestTheGuestBootsAndReportsWhatItWasGiven(t *testing.T) {
	b := newBench(t)
	image, err := host.GuestImage(t.Context(), b.repository)
	b.Expect(err).NotTo(HaveOccurred())
	h := b.up("h1")
	b.Expect(h.Copy(t.Context(), image, "/var/lib/libvirt/images/guest.qcow2")).To(Succeed())
	config := strings.Repeat("caplv", 700)
	b.Expect(h.WriteFile(t.Context(), "/var/lib/libvirt/config", []byte(config))).To(Succeed())

	for _, row := range []struct{ name, firmware, want, network string }{
		{"by UEFI, on a bridge", "uefi", "FW=UEFI", "<interface type='bridge'><source bridge='br0'/>"},
		{"by BIOS, on a libvirt network", "bios", "FW=BIOS", "<interface type='network'><source network='default'/>"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			disk, log := "/var/lib/libvirt/images/"+row.firmware+".qcow2", "/var/log/libvirt/qemu/"+row.firmware+".log.serial"
			g.Expect(h.Run(t.Context(), "qemu-img", "create", "-q", "-f", "qcow2", "-b", "guest.qcow2", "-F", "qcow2", disk, "1G")).To(Succeed())
			xml := domain(row.firmware, row.firmware, `<devices>
<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='`+disk+`'/><target dev='vda' bus='virtio'/></disk>
`+row.network+`<mac address='52:54:00:00:00:07'/><model type='virtio'/></interface>
<serial type='pty'><log file='`+log+`' append='off'/></serial></devices>
<sysinfo type='fwcfg'><entry name='opt/com.coreos/config' file='/var/lib/libvirt/config'/></sysinfo>`)
			g.Expect(h.WriteFile(t.Context(), "/root/vm.xml", []byte(xml))).To(Succeed())
			g.Expect(h.Run(t.Context(), "virsh", "-c", "qemu:///system", "create", "/root/vm.xml")).To(Succeed())
			started := time.Now()
			var text string
			g.Eventually(func() (string, error) {
				text, err = h.Exec(t.Context(), "cat", log)
				return text, err
			}, 4*time.Minute, 200*time.Millisecond).Should(ContainSubstring("CAPLV-GUEST DONE"))
			t.Logf("booted in %s", time.Since(started).Round(100*time.Millisecond))

			var report []string
			for line := range strings.SplitSeq(text, "\n") {
				if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "CAPLV-GUEST "); ok {
					report = append(report, rest)
				}
			}
			g.Expect(report).To(HaveExactElements(
				Equal(row.want),
				Equal(fmt.Sprintf("FWCFG bytes=%d sha256=%x", len(config), sha256.Sum256([]byte(config)))),
				Equal("DISK vda bytes=1073741824"),
				Equal("NET eth0 mac=52:54:00:00:00:07"),
				MatchRegexp(`^MEM kB=2[0-9]{5}$`),
				Equal("CPUS 1"),
				Equal("DONE"),
			))
			g.Expect(h.Run(t.Context(), "virsh", "-c", "qemu:///system", "destroy", row.firmware)).To(Succeed())
		})
	}
}
