// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/coreos/ignition/config/v2_0"
	"github.com/coreos/ignition/config/v2_1"
	"github.com/coreos/ignition/config/v2_2"
	"github.com/coreos/ignition/config/v2_3"
	"github.com/coreos/ignition/config/v2_4"
	types2 "github.com/coreos/ignition/config/v2_4/types"
	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/bootstrap"
)

// versions2 holds the parser of each version of spec 2.
var versions2 = map[string]func([]byte) error{
	"2.0.0": func(b []byte) error { _, _, err := v2_0.Parse(b); return err },
	"2.1.0": func(b []byte) error { _, _, err := v2_1.Parse(b); return err },
	"2.2.0": func(b []byte) error { _, _, err := v2_2.Parse(b); return err },
	"2.3.0": func(b []byte) error { _, _, err := v2_3.Parse(b); return err },
	"2.4.0": func(b []byte) error { _, _, err := v2_4.Parse(b); return err },
}

// full2 is a config of what every version of spec 2 has, with several entries of its own at the places of the identity.
const full2 = `{
  "ignition": {
    "version": "VERSION",
    "config": {"append": [{"source": "https://192.0.2.9:22623/config/worker", "verification": {"hash": "HASH"}}]}
  },
  "networkd": {"units": [{"name": "00-eth.network", "contents": "[Match]\nName=eth*\n"}]},
  "passwd": {
    "users": [{"name": "core", "passwordHash": "$1$x", "sshAuthorizedKeys": ["ssh-ed25519 AAAA <ops&co>"]},
              {"name": "ops", "create": {"uid": 500, "groups": ["wheel"]}}, {"name": "plain", "create": {}}],
    "groups": [{"name": "ops", "gid": 2000, "system": true}]
  },
  "storage": {
    "disks": [{"device": "/dev/vdb", "wipeTable": true, "partitions": [{"label": "data", "number": 1, "size": 4096, "start": 2048}]}],
    "raid": [{"name": "md", "level": "raid1", "devices": ["/dev/vdc", "/dev/vdd"]}],
    "filesystems": [
      {"name": "data", "mount": {"device": "/dev/vdb1", "format": "ext4", "create": {"force": true, "options": ["-L", "DATA"]}}},
      {"name": "md", "mount": {"device": "/dev/md/md", "format": "xfs", "create": {}}},
      {"name": "rootfs", "path": "/sysroot"}
    ],
    "files": [
      {"filesystem": "root", "path": "/etc/a", "mode": 420, "contents": {"source": "data:,a%20b"}, "user": {"id": 500}},
      {"filesystem": "root", "path": "/etc/hostname", "contents": {"source": "data:,old"}},
      {"filesystem": "data", "path": "/etc/hostname", "contents": {"source": "data:,kept"}},
      {"filesystem": "rootfs", "path": "/etc/../etc/hostname", "contents": {"source": "data:,old-too"}},
      {"filesystem": "root", "path": "/etc/NetworkManager/system-connections/caplv.nmconnection",
       "contents": {"source": "http://192.0.2.9/x", "verification": {"hash": "HASH"}}},
      {"filesystem": "root", "path": "/etc/systemd/system/kubelet.service.d/10-caplv-provider-id.conf", "contents": {"source": "data:,x"}}
    ]
  },
  "systemd": {"units": [
    {"name": "kubelet.service", "enable": true, "contents": "[Service]\nExecStart=/usr/bin/kubelet\n[Install]\nWantedBy=multi-user.target\n",
     "dropins": [{"name": "20-logging.conf", "contents": "[Service]\nEnvironment=KUBELET_LOG_LEVEL=2\n"}]},
    {"name": "locksmithd.service", "mask": true},
    {"name": "kubelet.service",
     "dropins": [{"name": "10-caplv-provider-id.conf", "contents": "[Service]\nEnvironment=KUBELET_PROVIDERID=old\n"},
                 {"name": "30-more.conf", "contents": "[Service]\nEnvironment=A=b\n"}]}
  ]},
  "unknownKey": {"ignored": true}
}`

func config2(version string) string {
	return strings.NewReplacer("VERSION", version, "HASH", "sha512-"+strings.Repeat("0", 128)).Replace(full2)
}

// read2 parses a config of any version of spec 2 into the types of the newest, as the guest's Ignition does.
func read2(g *WithT, data []byte) types2.Config {
	config, _, err := v2_4.Parse(data)
	g.Expect(err).NotTo(HaveOccurred())
	return config
}

func TestTheIdentityIsAddedToEveryVersionOfSpec2(t *testing.T) {
	for version, parse := range versions2 {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			out, err := bootstrap.Ignition([]byte(config2(version)), worker(), bootstrap.Plain)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(parse(out)).To(Succeed(), "Ignition must accept the result as the same version")
			again, err := bootstrap.Ignition([]byte(config2(version)), worker(), bootstrap.Plain)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(again).To(Equal(out), "the same input must give the same bytes")
			twice, err := bootstrap.Ignition(out, worker(), bootstrap.Plain)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(twice).To(MatchJSON(out), "a second edit must change nothing")

			var indented bytes.Buffer
			g.Expect(json.Indent(&indented, out, "", "  ")).To(Succeed())
			golden(g, "ignition-"+version+".json", append(indented.Bytes(), '\n'))
		})
	}
}

func TestWhatAConfigOfSpec2HasIsKept(t *testing.T) {
	for version := range versions2 {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			before := read2(g, []byte(config2(version)))
			out, err := bootstrap.Ignition([]byte(config2(version)), worker(), bootstrap.Plain)
			g.Expect(err).NotTo(HaveOccurred())
			after := read2(g, out)

			g.Expect(after.Ignition).To(Equal(before.Ignition))
			g.Expect(after.Passwd).To(Equal(before.Passwd))
			g.Expect(after.Networkd).To(Equal(before.Networkd))
			g.Expect(after.Storage.Disks).To(Equal(before.Storage.Disks))
			g.Expect(after.Storage.Raid).To(Equal(before.Storage.Raid))
			g.Expect(after.Storage.Filesystems).To(Equal(before.Storage.Filesystems))
			g.Expect(after.Storage.Files[:2]).To(Equal([]types2.File{before.Storage.Files[0], before.Storage.Files[2]}))
			g.Expect(after.Systemd.Units[1]).To(Equal(before.Systemd.Units[1]))
			g.Expect(after.Systemd.Units[2].Dropins).To(Equal(before.Systemd.Units[2].Dropins[1:]))
			g.Expect(after.Systemd.Units[0].Contents).To(Equal(before.Systemd.Units[0].Contents))
			g.Expect(after.Systemd.Units[0].Enable).To(BeTrue())
			g.Expect(after.Systemd.Units[0].Dropins[0]).To(Equal(before.Systemd.Units[0].Dropins[0]))
		})
	}
}

func TestTheGuestOfSpec2GetsTheIdentity(t *testing.T) {
	for version := range versions2 {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			out, err := bootstrap.Ignition([]byte(config2(version)), worker(), bootstrap.Plain)
			g.Expect(err).NotTo(HaveOccurred())
			after := read2(g, out)

			found := map[string]types2.File{}
			for _, file := range after.Storage.Files[2:] {
				g.Expect(found).NotTo(HaveKey(file.Path))
				g.Expect(file.Filesystem).To(Equal("root"))
				found[file.Path] = file
			}
			g.Expect(found).To(HaveLen(3))
			g.Expect(decoded(g, found["/etc/hostname"].Contents.Source)).To(Equal("default-prod-worker01\n"))
			g.Expect(*found["/etc/hostname"].Mode).To(Equal(0o644))
			keyfile := found["/etc/NetworkManager/system-connections/caplv.nmconnection"]
			golden(g, "dual-stack.nmconnection", []byte(decoded(g, keyfile.Contents.Source)))
			g.Expect(*keyfile.Mode).To(Equal(0o600))
			g.Expect(decoded(g, found["/etc/kubernetes/kubelet-env"].Contents.Source)).To(Equal(
				"KUBELET_PROVIDERID=libvirt://host-a/3f0c8a4e-6f0e-5a59-9d0e-3e1d1f9b7a11\n"))

			dropins := after.Systemd.Units[0].Dropins
			g.Expect(dropins[len(dropins)-1].Name).To(Equal("10-caplv-provider-id.conf"))
			g.Expect(dropins[len(dropins)-1].Contents).To(Equal("[Service]\nEnvironment=\"KUBELET_PROVIDERID=libvirt://host-a/3f0c8a4e-6f0e-5a59-9d0e-3e1d1f9b7a11\"\n"))
		})
	}
}

func TestWhatOnlyLaterVersionsOfSpec2HaveIsKept(t *testing.T) {
	g := NewWithT(t)
	const data = `{"ignition":{"version":"2.4.0","security":{"tls":{"certificateAuthorities":[{"source":"data:,ca"}]}},
	  "proxy":{"httpProxy":"http://192.0.2.1","noProxy":["a"]},"timeouts":{"httpTotal":0},
	  "config":{"append":[{"source":"http://192.0.2.9/","compression":"gzip","httpHeaders":[{"name":"A","value":"b"}]}]}},
	  "storage":{"disks":[{"device":"/dev/vdb","partitions":[{"label":"x","number":1,"sizeMiB":0,"startMiB":1,"wipePartitionEntry":true,"shouldExist":true}]}],
	    "filesystems":[{"name":"d","mount":{"device":"/dev/vdc","format":"xfs","wipeFilesystem":true,"label":"d","options":["-f"]}}],
	    "files":[{"filesystem":"root","path":"/etc/b","append":true,"mode":0,"contents":{"source":"data:,b"}},
	             {"filesystem":"root","path":"/etc/b","append":true,"contents":{"source":"data:,c"},"group":{"name":"g"}}],
	    "links":[{"filesystem":"root","path":"/l","target":"/m","hard":true,"overwrite":false}],
	    "directories":[{"filesystem":"root","path":"/etc/kubernetes","mode":448},{"filesystem":"root","path":"/etc/hostname"}]},
	  "passwd":{"users":[{"name":"u","uid":0,"noCreateHome":true,"shell":"/bin/sh","system":true,"passwordHash":""}]},
	  "networkd":{"units":[{"name":"a.network","dropins":[{"name":"b.conf","contents":"[Match]\n"}]}]}}`
	before := read2(g, []byte(data))
	out, err := bootstrap.Ignition([]byte(data), worker(), bootstrap.Plain)
	g.Expect(err).NotTo(HaveOccurred())
	after := read2(g, out)
	g.Expect(after.Ignition).To(Equal(before.Ignition))
	g.Expect(after.Passwd).To(Equal(before.Passwd))
	g.Expect(after.Networkd).To(Equal(before.Networkd))
	g.Expect(after.Storage.Disks).To(Equal(before.Storage.Disks))
	g.Expect(after.Storage.Filesystems).To(Equal(before.Storage.Filesystems))
	g.Expect(after.Storage.Links).To(Equal(before.Storage.Links))
	g.Expect(after.Storage.Directories).To(Equal(before.Storage.Directories[:1]))
	g.Expect(after.Storage.Files[:2]).To(Equal(before.Storage.Files))
}

func TestALargeConfigOfSpec2TakesNoLongTime(t *testing.T) {
	g := NewWithT(t)
	file := `{"filesystem":"root","path":"/srv/x","mode":420,"contents":{"source":"data:,` + strings.Repeat("x", 1000) + `"}}`
	data := `{"ignition":{"version":"2.3.0"},"storage":{"files":[` + strings.Repeat(file+",", 1000) + file + `]}}`
	start := time.Now()
	out, err := bootstrap.Ignition([]byte(data), worker(), bootstrap.Plain)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(out)).To(BeNumerically(">", len(data)))
	_, err = bootstrap.Ignition([]byte(strings.Replace(data, "/srv/x", "srv", 1)), worker(), bootstrap.Plain)
	g.Expect(err).To(MatchError(ContainSubstring("not a valid Ignition config: the first error is (path not absolute); run ignition-validate")))
	// Ignition's own parser of spec 2 would take many minutes.
	g.Expect(time.Since(start)).To(BeNumerically("<", 30*time.Second))
}
