// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package domain_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/domain"
)

var update = flag.Bool("update", false, "write the golden files")

const uid = "7d1c1b0e-9a53-4f0e-8a9f-2a1f6f5f4f3b"

func worker() domain.Spec {
	return domain.Spec{
		Name: "default-prod-worker01", UUID: domain.UUID(uid),
		Owner:    domain.Owner{Namespace: "default", Name: "worker01", UID: uid},
		VirtType: domain.VirtTypeKVM, Machine: "q35", VCPUs: 8, MemoryMiB: 16384, Firmware: domain.FirmwareUEFI,
		RootDisk:      domain.Disk{Pool: "default-prod-worker01", Volume: "default-prod-worker01-root.qcow2", Bus: "virtio", Format: "qcow2"},
		Network:       domain.NIC{Type: domain.NICTypeBridge, Name: "br0", Model: "virtio", MAC: domain.MAC(uid)},
		IgnitionPath:  "/run/caplv/default-prod-worker01/ignition.json",
		SerialLogPath: "/var/log/libvirt/qemu/default-prod-worker01-serial.log",
	}
}

// direct edits a machine so that it boots a kernel directly and has its Ignition config as a disk.
func direct(s *domain.Spec) {
	s.IgnitionPath, s.IgnitionDiskPath = "", "/run/caplv/default-prod-worker01/ignition.img"
	s.Boot = domain.DirectBoot{
		Kernel: "/var/lib/caplv/boot/aa/vmlinuz", Initramfs: "/var/lib/caplv/boot/bb/initramfs.img",
		Args: "ignition.platform.id=metal console=ttyS0 x=\"a<b\"",
	}
}

// seed edits a machine so that it is set up by cloud-init.
func seed(bus, machine, firmware string) func(*domain.Spec) {
	return func(s *domain.Spec) {
		s.VirtType, s.RootDisk.Bus, s.Machine, s.Firmware = domain.VirtTypeQEMU, bus, machine, firmware
		s.IgnitionPath, s.SeedPath = "", "/run/caplv/default-prod-worker01/seed.iso"
		s.Disks = []domain.Disk{{Pool: "default", Volume: "data.qcow2", Format: "qcow2", Serial: "data", Bus: bus}}
	}
}

func golden(g *WithT, name, got string) {
	path := filepath.Join("testdata", name)
	if *update {
		g.Expect(os.WriteFile(path, []byte(got), 0o644)).To(Succeed())
	}
	want, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred(), "run the test with -update to write it")
	g.Expect(got).To(Equal(string(want)))
	validate(g, path)
}

// validate checks a file against libvirt's own schemas.
func validate(g *WithT, path string) {
	for program, pkg := range map[string]string{"virt-xml-validate": "libvirt-clients", "xmllint": "libxml2-utils"} {
		_, err := exec.LookPath(program)
		g.Expect(err).NotTo(HaveOccurred(), "this test needs %s: install the Debian package %s", program, pkg)
	}
	out, err := exec.Command("virt-xml-validate", path).CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), "%s", out)
}

func TestDomains(t *testing.T) {
	for _, row := range []struct {
		name, file string
		edit       func(*domain.Spec)
	}{
		{"UEFI that libvirt selects, KVM and a bridge", "uefi-auto.xml", func(*domain.Spec) {}},
		{"UEFI at paths that the host names", "uefi-explicit.xml", func(s *domain.Spec) {
			s.LoaderPath, s.NVRAMTemplatePath = "/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"
		}},
		{"a loader whose template libvirt looks up", "uefi-loader.xml", func(s *domain.Spec) { s.LoaderPath = "/usr/share/OVMF/OVMF_CODE_4M.fd" }},
		{"BIOS", "bios.xml", func(s *domain.Spec) { s.Firmware = domain.FirmwareBIOS }},
		{"a libvirt network", "network.xml", func(s *domain.Spec) {
			s.Network = domain.NIC{Type: domain.NICTypeNetwork, Name: "default", Model: "e1000e", MAC: domain.MAC(uid)}
		}},
		{"software emulation", "qemu.xml", func(s *domain.Spec) { s.VirtType = domain.VirtTypeQEMU }},
		{"a SCSI disk gets a controller that guests have a driver for", "scsi.xml", func(s *domain.Spec) { s.RootDisk.Bus = "scsi" }},
		{"a SATA disk", "sata.xml", func(s *domain.Spec) { s.RootDisk.Bus = "sata" }},
		{"BIOS and software emulation of an older machine", "bios-qemu-pc.xml", func(s *domain.Spec) {
			s.Firmware, s.VirtType, s.Machine, s.RootDisk.Bus = domain.FirmwareBIOS, domain.VirtTypeQEMU, "pc", "sata"
		}},
		{"a version of the machine", "machine-version.xml", func(s *domain.Spec) {
			s.VirtType, s.Machine = domain.VirtTypeQEMU, "pc-q35-7.2"
		}},
		{"further disks by serial on every bus", "disks.xml", func(s *domain.Spec) {
			s.Disks = []domain.Disk{
				{Pool: "default", Volume: "etcd.qcow2", Format: "qcow2", Serial: "etcd"},
				{Pool: "default", Volume: "logs.qcow2", Format: "qcow2", Serial: "logs.1_a-b-c-d-e-f-g", Bus: "scsi"},
				{Pool: "fast", Volume: "logs.qcow2", Format: "raw", Serial: "fast", Bus: "sata"},
				{Pool: "fast", Volume: "more", Format: "raw", Bus: "scsi"},
				{Pool: "fast", Volume: "most", Format: "raw", Bus: "virtio"},
			}
		}},
		{"more SATA and SCSI disks than a controller of libvirt's choice has room for", "disks-many.xml", func(s *domain.Spec) {
			s.VirtType, s.RootDisk.Bus = domain.VirtTypeQEMU, "sata"
			for i := range 8 {
				s.Disks = append(s.Disks,
					domain.Disk{Pool: "p", Volume: fmt.Sprint("sata", i), Format: "qcow2", Bus: "sata"},
					domain.Disk{Pool: "p", Volume: fmt.Sprint("scsi", i), Format: "qcow2", Bus: "scsi"})
			}
			for i := range 27 - 17 {
				s.Disks = append(s.Disks, domain.Disk{Pool: "p", Volume: fmt.Sprint("more", i), Format: "qcow2", Bus: "scsi"})
			}
		}},
		{"a seed for cloud-init beside a virtio disk", "seed.xml", seed("virtio", "q35", domain.FirmwareUEFI)},
		{"a seed for cloud-init beside a SCSI disk", "seed-scsi.xml", seed("scsi", "q35", domain.FirmwareUEFI)},
		{"a seed for cloud-init beside a SATA disk of an older machine", "seed-sata-pc.xml", seed("sata", "pc-i440fx-7.2", domain.FirmwareBIOS)},
		{"a kernel that is booted directly, and the config as a disk", "boot.xml", direct},
		{"a kernel that is booted directly by BIOS, beside SCSI disks", "boot-bios.xml", func(s *domain.Spec) {
			direct(s)
			s.Firmware, s.VirtType, s.RootDisk.Bus = domain.FirmwareBIOS, domain.VirtTypeQEMU, "scsi"
		}},
		{"an account's own daemon", "session.xml", func(s *domain.Spec) {
			s.Session, s.VirtType = true, domain.VirtTypeQEMU
			s.IgnitionPath = "/run/user/1001/caplv/default-prod-worker01/ignition.json"
			s.SerialLogPath = "/home/caplv/.local/state/caplv/default-prod-worker01-serial.log"
		}},
		{"a root disk that was copied completely", "root-cloned.xml", func(s *domain.Spec) { s.RootCloned = true }},
		{"more vCPUs than interrupts reach by themselves", "vcpus.xml", func(s *domain.Spec) { s.VCPUs = 256 }},
		{"what is left out has its default", "defaults.xml", func(s *domain.Spec) {
			s.Machine, s.RootDisk.Bus, s.Network.Model, s.IgnitionPath, s.SerialLogPath = "", "", "", "", ""
		}},
		{"values with a meaning in XML are escaped", "escaped.xml", func(s *domain.Spec) {
			s.Owner = domain.Owner{Namespace: `a"b`, Name: `</caplv:owner><x y='z'>`, UID: "1&2"}
			s.IgnitionPath, s.SerialLogPath = "/run/a<b>&c/ignition.json", `/var/log/a"b.log`
			s.LoaderPath, s.NVRAMTemplatePath = "/usr/share/a&b/CODE.fd", "/usr/share/a&b/VARS.fd"
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			spec := worker()
			row.edit(&spec)
			xml, err := domain.XML(spec)
			g.Expect(err).NotTo(HaveOccurred())
			golden(g, row.file, xml)

			seen, err := domain.Parse(xml)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(seen.Name).To(Equal(spec.Name))
			g.Expect(seen.UUID).To(Equal(spec.UUID))
			g.Expect(seen.Owner).To(HaveValue(Equal(spec.Owner)), "the owner must be read back as it was written")
			g.Expect(seen.RootCloned).To(Equal(spec.RootCloned))
			g.Expect(seen.Boot).To(Equal(spec.Boot))
			g.Expect(seen.VCPUs).To(Equal(spec.VCPUs))
			g.Expect(seen.MemoryMiB).To(Equal(spec.MemoryMiB))
			wanted := 1 + len(spec.Disks)
			if last := spec.SeedPath + spec.IgnitionDiskPath; last != "" {
				g.Expect(seen.Disks).To(HaveLen(wanted + 1))
				g.Expect(seen.Disks[wanted].Path).To(Equal(last), "the seed, or the Ignition config, must be the last disk")
			} else {
				g.Expect(seen.Disks).To(HaveLen(wanted))
			}
			for i, d := range spec.Disks {
				g.Expect(seen.Disks[i+1]).To(And(HaveField("Pool", d.Pool), HaveField("Volume", d.Volume), HaveField("Serial", d.Serial)))
			}
			g.Expect(seen.Disks[0].Pool).To(Equal(spec.RootDisk.Pool))
			g.Expect(seen.Disks[0].Volume).To(Equal(spec.RootDisk.Volume))
			g.Expect(seen.Disks[0].Format).To(Equal(spec.RootDisk.Format))
		})
	}
}

// more edits a machine so that it has these disks as well.
func more(disks ...domain.Disk) func(*domain.Spec) {
	return func(s *domain.Spec) { s.Disks = disks }
}

func TestASpecThatNoHostWouldAcceptIsRefused(t *testing.T) {
	for _, row := range []struct {
		name    string
		edit    func(*domain.Spec)
		message string
	}{
		{"no name", func(s *domain.Spec) { s.Name = "" }, "the name is empty"},
		{"a name of two lines", func(s *domain.Spec) { s.Name = "a\nb" }, "the name .* not printable"},
		{"an owner that is not UTF-8", func(s *domain.Spec) { s.Owner.Name = "a\xffb" }, "the owner's name .* not printable"},
		{"no owner", func(s *domain.Spec) { s.Owner = domain.Owner{} }, "the owner's namespace is empty"},
		{"no UUID", func(s *domain.Spec) { s.UUID = "" }, "the UUID"},
		{"an unknown virtualization type", func(s *domain.Spec) { s.VirtType = "xen" }, "neither kvm nor qemu"},
		{"an unknown firmware", func(s *domain.Spec) { s.Firmware = "efi" }, "neither uefi nor bios"},
		{"a template without loader", func(s *domain.Spec) { s.NVRAMTemplatePath = "/x" }, "without the loader"},
		{"an unknown bus", func(s *domain.Spec) { s.RootDisk.Bus = "ide" }, "none of virtio, scsi and sata"},
		{"an unknown network type", func(s *domain.Spec) { s.Network.Type = "user" }, "neither bridge nor network"},
		{"no MAC address", func(s *domain.Spec) { s.Network.MAC = "" }, "the MAC address"},
		{"a disk on an unknown bus", more(domain.Disk{Pool: "p", Volume: "v", Format: "raw", Bus: "usb"}), "disk 1's bus \"usb\" is none"},
		{"a disk without volume", more(domain.Disk{Pool: "p", Format: "raw"}), "disk 1's volume is empty"},
		{"the serial of the Ignition config", func(s *domain.Spec) {
			direct(s)
			s.Disks = []domain.Disk{{Pool: "p", Volume: "v", Format: "raw", Serial: "ignition"}}
		}, "also that of the Ignition config"},
		{"the Ignition config twice", func(s *domain.Spec) { direct(s); s.IgnitionPath = "/x" }, "both a disk and a file of fw_cfg"},
		{"a kernel without initramfs", func(s *domain.Spec) { direct(s); s.Boot.Initramfs = "" }, "needs both"},
		{"an initramfs without kernel", func(s *domain.Spec) { direct(s); s.Boot.Kernel = "" }, "needs both"},
		{"a command line without kernel", func(s *domain.Spec) { s.Boot.Args = "quiet" }, "without the kernel"},
		{"a command line of two lines", func(s *domain.Spec) { direct(s); s.Boot.Args = "a\nb" }, "not printable"},
		{"a serial of 21 characters", more(domain.Disk{Pool: "p", Volume: "v", Format: "raw", Serial: "123456789012345678901"}), "up to 20 letters"},
		{"a serial with an option for QEMU", more(domain.Disk{Pool: "p", Volume: "v", Format: "raw", Serial: "a,b"}), "up to 20 letters"},
		{"a serial twice", more(domain.Disk{Pool: "p", Volume: "v", Format: "raw", Serial: "a"}, domain.Disk{Pool: "p", Volume: "w", Format: "raw", Serial: "a"}),
			"disk 2's serial \"a\" is also that of the disk 1"},
		{"a volume twice", more(worker().RootDisk), "is also that of the root disk"},
		{"a libvirt network in a session", func(s *domain.Spec) {
			s.Session, s.Network.Type, s.Network.Name = true, domain.NICTypeNetwork, "default"
		}, "a session's daemon cannot use; name a bridge"},
		{"256 vCPUs under emulation", func(s *domain.Spec) { s.VCPUs, s.VirtType = 256, domain.VirtTypeQEMU }, "need KVM and the machine type q35"},
		{"256 vCPUs of an older machine", func(s *domain.Spec) { s.VCPUs, s.Machine = 256, "pc-i440fx-7.2" }, "need KVM and the machine type q35"},
		{"no vCPU", func(s *domain.Spec) { s.VCPUs = 0 }, "vCPUs is 0"},
		{"no memory", func(s *domain.Spec) { s.MemoryMiB = 0 }, "0 MiB"},
		{"no volume", func(s *domain.Spec) { s.RootDisk.Volume = "" }, "the root disk's volume is empty"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			spec := worker()
			row.edit(&spec)
			xml, err := domain.XML(spec)
			g.Expect(err).To(MatchError(MatchRegexp(row.message)))
			g.Expect(xml).To(BeEmpty())
		})
	}
}

func TestWhiteSpaceSeparatesArguments(t *testing.T) {
	g := NewWithT(t)
	g.Expect(domain.BootArgs("ignition.platform.id=metal\n  console=ttyS0\tquiet\n")).To(Equal("ignition.platform.id=metal console=ttyS0 quiet"))
	g.Expect(domain.BootArgs(" \n")).To(BeEmpty())
}
