// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package domain_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/domain"
)

func dump(g *WithT, name string) string {
	data, err := os.ReadFile(filepath.Join("testdata", name))
	g.Expect(err).NotTo(HaveOccurred())
	return string(data)
}

func TestADomainOfOursIsReadBackFromLibvirt(t *testing.T) {
	g := NewWithT(t)
	spec := worker()
	seen, err := domain.Parse(dump(g, "dumpxml-owned.xml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(seen).To(Equal(domain.Observed{
		Name: spec.Name, UUID: spec.UUID, Owner: &spec.Owner, VCPUs: spec.VCPUs, MemoryMiB: spec.MemoryMiB,
		Disks: []domain.ObservedDisk{{
			Device: "disk", Pool: spec.RootDisk.Pool, Volume: spec.RootDisk.Volume, Target: "sda", Bus: "scsi", Format: "qcow2",
		}},
	}))
}

func TestAForeignDomainHasNoOwnerAndIsReadDespiteWhatIsUnknown(t *testing.T) {
	g := NewWithT(t)
	seen, err := domain.Parse(dump(g, "dumpxml-foreign.xml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(seen).To(Equal(domain.Observed{
		Name: "standby-db", UUID: "5c1e5f6a-3f0b-4d8f-9c84-0a4b7d9e2f11", VCPUs: 4, MemoryMiB: 8192,
		NVRAMPath: "/var/lib/libvirt/qemu/nvram/standby-db_VARS.qcow2",
		Disks: []domain.ObservedDisk{
			{Device: "disk", Path: "/var/lib/libvirt/images/db.img", Target: "vda", Bus: "virtio", Format: "raw"},
			{Device: "lun", Path: "/dev/mapper/db", Target: "sda", Bus: "scsi"},
			{Device: "cdrom", Target: "sdb", Bus: "sata"},
		},
	}))
}

func TestARootDiskIsCompleteOnlyWhereTheOwnerSaysSo(t *testing.T) {
	const owner = `<owner xmlns="https://caplv.github.io/xmlns/libvirt/v1" namespace="n" name="m" uid="u" rootDisk="complete"/>`
	for _, row := range []struct {
		name, content string
		want          bool
	}{
		{"the mark", "<metadata>" + owner + "</metadata>", true},
		{"no mark", "<metadata>" + strings.Replace(owner, ` rootDisk="complete"`, "", 1) + "</metadata>", false},
		{"another word", "<metadata>" + strings.Replace(owner, "complete", "partial", 1) + "</metadata>", false},
		{"an owner without UID", "<metadata>" + strings.Replace(owner, `"u"`, `""`, 1) + "</metadata>", false},
		{"two owners", "<metadata>" + owner + owner + "</metadata>", false},
		{"the mark of another namespace", "<metadata>" + strings.Replace(owner, "/v1", "/v2", 1) + "</metadata>", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			seen, err := domain.Parse(small(row.content))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(seen.RootCloned).To(Equal(row.want))
		})
	}
}

// small wraps content into a domain that has name and UUID.
func small(content string) string {
	return "<domain><name>a</name><uuid>5c1e5f6a-3f0b-4d8f-9c84-0a4b7d9e2f11</uuid>" + content + "</domain>"
}

func TestTheOwnerIsBelievedOnlyWhereItIsBeyondDoubt(t *testing.T) {
	const owner = `<owner xmlns="https://caplv.github.io/xmlns/libvirt/v1" namespace="n" name="m" uid="u"/>`
	for _, row := range []struct {
		name, content string
		want          *domain.Owner
	}{
		{"one element of our namespace", "<metadata>" + owner + "</metadata>", &domain.Owner{Namespace: "n", Name: "m", UID: "u"}},
		{"another prefix", `<metadata xmlns:p="https://caplv.github.io/xmlns/libvirt/v1"><p:owner namespace="n" name="m" uid="u"/></metadata>`,
			&domain.Owner{Namespace: "n", Name: "m", UID: "u"}},
		{"no metadata", "", nil},
		{"another namespace", `<metadata><owner namespace="n" name="m" uid="u"/></metadata>`, nil},
		{"another version of ours", strings.Replace("<metadata>"+owner+"</metadata>", "/v1", "/v2", 1), nil},
		{"two elements", "<metadata>" + owner + owner + "</metadata>", nil},
		{"no UID", `<metadata><owner xmlns="https://caplv.github.io/xmlns/libvirt/v1" namespace="n" name="m"/></metadata>`, nil},
		{"outside of the metadata", "<description>" + owner + "</description>" + owner, nil},
		{"within somebody else's metadata", `<metadata><x xmlns="urn:x">` + owner + "</x></metadata>", nil},
		{"as text", "<metadata>&lt;owner uid='u'/&gt;</metadata>", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			seen, err := domain.Parse(small(row.content))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(seen.Owner).To(Equal(row.want))
		})
	}
}

func TestMemoryIsReadInEveryUnitOfLibvirt(t *testing.T) {
	for _, row := range []struct {
		name, memory string
		want         uint
	}{
		{"no unit is KiB", "<memory>2048</memory>", 2},
		{"bytes", "<memory unit='bytes'>1048576</memory>", 1},
		{"kB are 1000 bytes", "<memory unit='KB'>1049</memory>", 1},
		{"KiB are rounded down", "<memory unit='KiB'>2047</memory>", 1},
		{"MiB with white space", "<memory unit='MiB'> 7\n</memory>", 7},
		{"GiB by letter", "<memory unit='G'>2</memory>", 2048},
		{"an unknown unit is not guessed", "<memory unit='pages'>2048</memory>", 0},
		{"too much for 64 bits", "<memory unit='EiB'>99</memory>", 0},
		{"not a number", "<memory>much</memory>", 0},
		{"a negative number", "<memory>-1</memory>", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			seen, err := domain.Parse(small(row.memory))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(seen.MemoryMiB).To(Equal(row.want))
		})
	}
}

func TestNVRAMAsTextIsReadToo(t *testing.T) {
	g := NewWithT(t)
	seen, err := domain.Parse(small("<os><nvram template='/t'>/var/lib/libvirt/qemu/nvram/a_VARS.fd</nvram></os>"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(seen.NVRAMPath).To(Equal("/var/lib/libvirt/qemu/nvram/a_VARS.fd"))
}

func TestPoolsAndVolumesAreReadBackFromLibvirt(t *testing.T) {
	g := NewWithT(t)
	g.Expect(domain.ParsePool(`<pool type='dir'>
  <name>p</name>
  <uuid>f74dfcc6-98f9-59c2-b7f3-0a7b48955d13</uuid>
  <capacity unit='bytes'>270553174016</capacity>
  <source>
  </source>
  <target>
    <path>/run/caplv/a&amp;b</path>
    <permissions><mode>0755</mode></permissions>
  </target>
</pool>`)).To(Equal(domain.ObservedPool{Name: "p", UUID: "f74dfcc6-98f9-59c2-b7f3-0a7b48955d13", TargetPath: "/run/caplv/a&b"}))

	g.Expect(domain.ParseVolume(`<volume type='file'>
  <name>v.qcow2</name>
  <key>/images/v.qcow2</key>
  <capacity unit='bytes'>107374182400</capacity>
  <allocation unit='bytes'>200704</allocation>
  <physical unit='bytes'>198208</physical>
  <target>
    <path>/images/v.qcow2</path>
    <format type='qcow2'/>
    <timestamps><btime>0</btime></timestamps>
    <compat>1.1</compat>
  </target>
  <backingStore>
    <path>/images/base.raw</path>
    <format type='raw'/>
  </backingStore>
</volume>`)).To(Equal(domain.ObservedVolume{Name: "v.qcow2", Path: "/images/v.qcow2", CapacityBytes: 100 << 30, AllocationBytes: 200704,
		Format: "qcow2", BackingPath: "/images/base.raw"}))
}

func TestWhatIsNotTheRightXMLIsRefused(t *testing.T) {
	parsers := map[string]func(string) error{
		"domain":       func(s string) error { _, err := domain.Parse(s); return err },
		"storage pool": func(s string) error { _, err := domain.ParsePool(s); return err },
		"volume":       func(s string) error { _, err := domain.ParseVolume(s); return err },
	}
	for what, parse := range parsers {
		for _, row := range []struct{ name, xml string }{
			{"nothing", ""},
			{"no XML", "error: failed to get domain 'a'"},
			{"another root", "<network><name>a</name><uuid>b</uuid></network>"},
			{"XML that is cut off", "<domain><name>a</name>"},
			{"a domain without name", "<domain><uuid>5c1e5f6a-3f0b-4d8f-9c84-0a4b7d9e2f11</uuid></domain>"},
			{"a pool without UUID", "<pool><name>a</name></pool>"},
			{"a volume without capacity", "<volume><name>a</name><target><path>/a</path></target></volume>"},
		} {
			t.Run(what+" from "+row.name, func(t *testing.T) {
				g := NewWithT(t)
				g.Expect(parse(row.xml)).To(MatchError(HavePrefix("reading the " + what + "'s XML: ")))
			})
		}
	}
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.xml"))
	if err != nil || len(files) == 0 {
		f.Fatalf("the golden files are missing: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	f.Add(small("<memory unit='EiB'>18446744073709551615</memory><vcpu>4294967296</vcpu>"))
	f.Fuzz(func(t *testing.T, text string) {
		g := NewWithT(t)
		if seen, err := domain.Parse(text); err == nil {
			g.Expect(seen.Name).NotTo(BeEmpty())
			g.Expect(seen.UUID).NotTo(BeEmpty())
			if seen.Owner != nil {
				g.Expect(seen.Owner.UID).NotTo(BeEmpty())
			}
		}
		if seen, err := domain.ParsePool(text); err == nil {
			g.Expect(seen.UUID).NotTo(BeEmpty())
		}
		if seen, err := domain.ParseVolume(text); err == nil {
			g.Expect(seen.Path).NotTo(BeEmpty())
		}
	})
}

func FuzzWhatIsWrittenIsReadBack(f *testing.F) {
	f.Add("default", "worker01", "p", "v.qcow2", "data", true)
	f.Add(`"'<>&`, "]]><!--", "a b", "\u00e9\u4e2d", "", false)
	f.Add("default", "worker01", "p", "v.qcow2", "a,b=c", true)
	f.Fuzz(func(t *testing.T, namespace, name, pool, volume, serial string, cloned bool) {
		g := NewWithT(t)
		spec := worker()
		spec.Owner.Namespace, spec.Owner.Name = namespace, name
		spec.RootDisk.Pool, spec.RootDisk.Volume, spec.RootCloned = pool, volume, cloned
		spec.Disks = []domain.Disk{{Pool: pool, Volume: volume + "2", Format: "raw", Serial: serial}}
		text, err := domain.XML(spec)
		if err != nil {
			g.Expect(text).To(BeEmpty())
			return
		}
		seen, err := domain.Parse(text)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(seen.Owner).To(HaveValue(Equal(spec.Owner)))
		g.Expect(seen.Disks[0].Pool).To(Equal(pool))
		g.Expect(seen.Disks[0].Volume).To(Equal(volume))
		g.Expect(seen.Disks[1].Serial).To(Equal(serial))
		g.Expect(seen.RootCloned).To(Equal(cloned))
	})
}
