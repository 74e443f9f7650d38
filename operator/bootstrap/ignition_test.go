// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_0"
	"github.com/coreos/ignition/v2/config/v3_1"
	"github.com/coreos/ignition/v2/config/v3_2"
	"github.com/coreos/ignition/v2/config/v3_3"
	"github.com/coreos/ignition/v2/config/v3_4"
	"github.com/coreos/ignition/v2/config/v3_5"
	types "github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/bootstrap"
)

var update = flag.Bool("update", false, "write the golden files")

func worker() bootstrap.Identity {
	return bootstrap.Identity{
		Hostname:   "default-prod-worker01",
		ProviderID: "libvirt://host-a/3f0c8a4e-6f0e-5a59-9d0e-3e1d1f9b7a11",
		Network: bootstrap.Network{
			MAC:           "62:0A:11:22:33:44",
			Addresses:     []netip.Prefix{netip.MustParsePrefix("192.0.2.50/24"), netip.MustParsePrefix("2001:db8::50/64")},
			Gateways:      []netip.Addr{netip.MustParseAddr("fe80::1"), netip.MustParseAddr("192.0.2.1")},
			Nameservers:   []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("192.0.2.3")},
			SearchDomains: []string{"example.com", "corp.example.com"},
		},
	}
}

// full is a config that uses what every version has, and has entries of its own at the places of the identity.
const full = `{
  "ignition": {
    "version": "VERSION",
    "config": {"merge": [{"source": "https://192.0.2.9:22623/config/worker", "verification": {"hash": "HASH"}}]},
    "security": {"tls": {"certificateAuthorities": [{"source": "data:;base64,Y2E="}]}},
    "timeouts": {"httpTotal": 30}
  },
  "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA <ops&co>"], "groups": ["wheel"]}], "groups": [{"name": "ops", "gid": 2000}]},
  "storage": {
    "disks": [{"device": "/dev/vdb", "wipeTable": true, "partitions": [{"label": "data", "number": 1}]}],
    "filesystems": [{"device": "/dev/disk/by-partlabel/data", "format": "xfs", "path": "/var/data"}],
    "directories": [{"path": "/var/data/x", "mode": 448, "user": {"name": "core"}}],
    "files": [
      {"path": "/etc/a", "mode": 420, "contents": {"source": "data:,a", "compression": ""}, "user": {"id": 0}},
      {"path": "/etc/hostname", "user": {"name": "core"}, "overwrite": false,
       "contents": {"source": "data:,old", "compression": "gzip", "verification": {"hash": "HASH"}},
       "append": [{"source": "data:,more"}]}
    ],
    "links": [{"path": "/etc/localtime", "target": "/usr/share/zoneinfo/UTC"},
              {"path": "/etc/NetworkManager/system-connections/caplv.nmconnection", "target": "/dev/null"}]
  },
  "systemd": {"units": [
    {"name": "kubelet.service", "enabled": true, "contents": "[Service]\nExecStart=/usr/bin/kubelet\n[Install]\nWantedBy=multi-user.target\n",
     "dropins": [{"name": "20-logging.conf", "contents": "[Service]\nEnvironment=KUBELET_LOG_LEVEL=2\n"},
                 {"name": "10-caplv-provider-id.conf", "contents": "[Service]\nEnvironment=KUBELET_PROVIDERID=old\n"}]},
    {"name": "zincati.service", "mask": true}
  ]},
  "unknownKey": {"ignored": true}
}`

func config(version string) string {
	return strings.NewReplacer("VERSION", version, "HASH", "sha512-"+strings.Repeat("0", 128)).Replace(full)
}

func minimal(version string) string { return `{"ignition":{"version":"` + version + `"}}` }

// versions holds the parser of each version; each reports an error for whatever Ignition would refuse to boot with.
var versions = map[string]func([]byte) error{
	"3.0.0": func(b []byte) error { _, _, err := v3_0.Parse(b); return err },
	"3.1.0": func(b []byte) error { _, _, err := v3_1.Parse(b); return err },
	"3.2.0": func(b []byte) error { _, _, err := v3_2.Parse(b); return err },
	"3.3.0": func(b []byte) error { _, _, err := v3_3.Parse(b); return err },
	"3.4.0": func(b []byte) error { _, _, err := v3_4.Parse(b); return err },
	"3.5.0": func(b []byte) error { _, _, err := v3_5.Parse(b); return err },
}

// read parses a config of any version into the types of the newest.
func read(g *WithT, data []byte) types.Config {
	config, _, err := v3_5.ParseCompatibleVersion(data)
	g.Expect(err).NotTo(HaveOccurred())
	return config
}

func fileOf(g *WithT, config types.Config, path string) types.File {
	var found []types.File
	for _, file := range config.Storage.Files {
		if file.Path == path {
			found = append(found, file)
		}
	}
	g.Expect(found).To(HaveLen(1), "files at %s", path)
	return found[0]
}

func contentOf(g *WithT, file types.File) string {
	encoded, ok := strings.CutPrefix(*file.Contents.Source, "data:;base64,")
	g.Expect(ok).To(BeTrue(), "the source of %s is %s", file.Path, *file.Contents.Source)
	content, err := base64.StdEncoding.DecodeString(encoded)
	g.Expect(err).NotTo(HaveOccurred())
	return string(content)
}

func golden(g *WithT, name string, got []byte) {
	path := filepath.Join("testdata", name)
	if *update {
		g.Expect(os.WriteFile(path, got, 0o644)).To(Succeed())
	}
	want, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred(), "run the test with -update to write it")
	g.Expect(string(got)).To(Equal(string(want)))
}

func TestTheIdentityIsAddedToEveryVersion(t *testing.T) {
	for version, parse := range versions {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			out, err := bootstrap.Ignition([]byte(config(version)), worker(), bootstrap.Plain)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(parse(out)).To(Succeed(), "Ignition must accept the result as the same version")
			again, err := bootstrap.Ignition([]byte(config(version)), worker(), bootstrap.Plain)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(again).To(Equal(out), "the same input must give the same bytes")

			var indented bytes.Buffer
			g.Expect(json.Indent(&indented, out, "", "  ")).To(Succeed())
			golden(g, "ignition-"+version+".json", append(indented.Bytes(), '\n'))
		})
	}
}

func TestAddingTheIdentityTwiceChangesNothing(t *testing.T) {
	for version := range versions {
		g := NewWithT(t)
		once, err := bootstrap.Ignition([]byte(config(version)), worker(), bootstrap.Plain)
		g.Expect(err).NotTo(HaveOccurred())
		twice, err := bootstrap.Ignition(once, worker(), bootstrap.Plain)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(twice).To(MatchJSON(once))
	}
}

func TestWhatTheConfigHasIsKept(t *testing.T) {
	for version := range versions {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			before := read(g, []byte(config(version)))
			out, err := bootstrap.Ignition([]byte(config(version)), worker(), bootstrap.Plain)
			g.Expect(err).NotTo(HaveOccurred())
			after := read(g, out)

			g.Expect(after.Ignition.Config.Merge).To(HaveLen(3))
			g.Expect(after.Ignition.Config.Merge[0]).To(Equal(before.Ignition.Config.Merge[0]))
			after.Ignition.Config, before.Ignition.Config = types.IgnitionConfig{}, types.IgnitionConfig{}
			g.Expect(after.Ignition).To(Equal(before.Ignition))
			g.Expect(after.Passwd).To(Equal(before.Passwd))
			g.Expect(after.Storage.Disks).To(Equal(before.Storage.Disks))
			g.Expect(after.Storage.Filesystems).To(Equal(before.Storage.Filesystems))
			g.Expect(after.Storage.Directories).To(Equal(before.Storage.Directories))
			g.Expect(fileOf(g, after, "/etc/a")).To(Equal(fileOf(g, before, "/etc/a")))
			g.Expect(after.Storage.Links).To(Equal(before.Storage.Links[:1]))
			g.Expect(after.Systemd.Units[1]).To(Equal(before.Systemd.Units[1]))

			kubelet := after.Systemd.Units[0]
			g.Expect(kubelet.Contents).To(Equal(before.Systemd.Units[0].Contents))
			g.Expect(kubelet.Enabled).To(Equal(before.Systemd.Units[0].Enabled))
			g.Expect(kubelet.Dropins).To(HaveLen(2))
			g.Expect(kubelet.Dropins[0]).To(Equal(before.Systemd.Units[0].Dropins[0]))
		})
	}
}

// TestTheIdentityOutlastsFurtherConfigs merges as a guest does: what is named, in order, over the config itself.
func TestTheIdentityOutlastsFurtherConfigs(t *testing.T) {
	g := NewWithT(t)
	out, err := bootstrap.Ignition([]byte(config("3.2.0")), worker(), bootstrap.Plain)
	g.Expect(err).NotTo(HaveOccurred())
	merged, _, err := v3_2.Parse(out)
	g.Expect(err).NotTo(HaveOccurred())
	references := merged.Ignition.Config.Merge
	remote := `{"ignition":{"version":"3.2.0"},"storage":{"files":[
	  {"path":"/etc/hostname","contents":{"source":"data:,another","verification":{"hash":"sha512-` + strings.Repeat("0", 128) + `"}}},
	  {"path":"/etc/remote","contents":{"source":"data:,x"}}]}}`
	for i, reference := range references {
		source := []byte(remote)
		if i > 0 {
			encoded, ok := strings.CutPrefix(*reference.Source, "data:;base64,")
			g.Expect(ok).To(BeTrue())
			source, err = base64.StdEncoding.DecodeString(encoded)
			g.Expect(err).NotTo(HaveOccurred())
		}
		child, _, err := v3_2.Parse(source)
		g.Expect(err).NotTo(HaveOccurred())
		merged = v3_2.Merge(merged, child)
	}
	raw, err := json.Marshal(merged)
	g.Expect(err).NotTo(HaveOccurred())
	guest := read(g, raw)
	name := fileOf(g, guest, "/etc/hostname")
	g.Expect(contentOf(g, name)).To(Equal("default-prod-worker01\n"))
	g.Expect(name.Contents.Verification.Hash).To(BeNil())
	g.Expect(*fileOf(g, guest, "/etc/remote").Contents.Source).To(Equal("data:,x"))
}

func TestKernelArgumentsAndLuksAreKept(t *testing.T) {
	g := NewWithT(t)
	in := `{"ignition":{"version":"3.4.0","proxy":{"httpProxy":"http://192.0.2.8"}},"kernelArguments":{"shouldExist":["a=b"]},
	  "storage":{"luks":[{"name":"root","device":"/dev/vda4","clevis":{"tang":[{"url":"http://192.0.2.7","thumbprint":"x"}],"threshold":0}}]}}`
	out, err := bootstrap.Ignition([]byte(in), worker(), bootstrap.Plain)
	g.Expect(err).NotTo(HaveOccurred())
	before, after := read(g, []byte(in)), read(g, out)
	g.Expect(after.Ignition).To(Equal(before.Ignition))
	g.Expect(after.KernelArguments).To(Equal(before.KernelArguments))
	g.Expect(after.Storage.Luks).To(Equal(before.Storage.Luks))
}

func TestWhatStoodInThePlaceOfTheIdentityIsReplacedAsAWhole(t *testing.T) {
	g := NewWithT(t)
	out, err := bootstrap.Ignition([]byte(config("3.2.0")), worker(), bootstrap.Plain)
	g.Expect(err).NotTo(HaveOccurred())
	after := read(g, out)

	name := fileOf(g, after, "/etc/hostname")
	g.Expect(contentOf(g, name)).To(Equal("default-prod-worker01\n"))
	g.Expect(*name.Mode).To(Equal(0o644))
	g.Expect(*name.Overwrite).To(BeTrue())
	g.Expect(name.Append).To(BeEmpty(), "appended parts would make another name")
	g.Expect(name.Contents.Compression).To(BeNil(), "the new content is not compressed")
	g.Expect(name.Contents.Verification.Hash).To(BeNil(), "the hash was that of the old content")
	g.Expect(name.User).To(Equal(types.NodeUser{}))

	keyfile := fileOf(g, after, "/etc/NetworkManager/system-connections/caplv.nmconnection")
	g.Expect(*keyfile.Mode).To(Equal(0o600))
	g.Expect(*keyfile.Overwrite).To(BeTrue())

	dropin := after.Systemd.Units[0].Dropins[1]
	g.Expect(dropin.Name).To(Equal("10-caplv-provider-id.conf"))
	g.Expect(*dropin.Contents).To(Equal("[Service]\nEnvironment=\"KUBELET_PROVIDERID=libvirt://host-a/3f0c8a4e-6f0e-5a59-9d0e-3e1d1f9b7a11\"\n"))
}

func TestTheProviderIDIsQuotedForSystemd(t *testing.T) {
	g := NewWithT(t)
	id := worker()
	id.ProviderID = `a b"c\d%e$f'`
	out, err := bootstrap.Ignition([]byte(minimal("3.4.0")), id, bootstrap.Plain)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*read(g, out).Systemd.Units[0].Dropins[0].Contents).To(Equal(`[Service]` + "\n" + `Environment="KUBELET_PROVIDERID=a b\"c\\d%%e$f'"` + "\n"))
}

func TestTheConnection(t *testing.T) {
	for _, row := range []struct {
		name, file string
		edit       func(*bootstrap.Network)
	}{
		{"dual stack configures both families", "dual-stack.nmconnection", func(*bootstrap.Network) {}},
		{"IPv4 alone disables IPv6", "ipv4.nmconnection", func(n *bootstrap.Network) {
			n.Addresses, n.Gateways, n.Nameservers = n.Addresses[:1], n.Gateways[1:], n.Nameservers[:1]
		}},
		{"IPv6 alone disables IPv4", "ipv6.nmconnection", func(n *bootstrap.Network) {
			n.Addresses, n.Gateways, n.Nameservers = n.Addresses[1:], n.Gateways[:1], n.Nameservers[1:2]
		}},
		{"an address alone is enough", "address-only.nmconnection", func(n *bootstrap.Network) {
			*n = bootstrap.Network{MAC: n.MAC, Addresses: n.Addresses[:1]}
		}},
		{"gateways outside the prefixes need nothing more", "host-prefixes.nmconnection", hostPrefixes},
		{"several addresses of a family are numbered and the gateway goes with the first", "addresses.nmconnection", func(n *bootstrap.Network) {
			*n = bootstrap.Network{MAC: n.MAC, Gateways: n.Gateways[1:], Addresses: []netip.Prefix{
				netip.MustParsePrefix("192.0.2.50/24"), netip.MustParsePrefix("198.51.100.7/32")}}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			id := worker()
			row.edit(&id.Network)
			out, err := bootstrap.Ignition([]byte(minimal("3.2.0")), id, bootstrap.Plain)
			g.Expect(err).NotTo(HaveOccurred())
			golden(g, row.file, []byte(contentOf(g, fileOf(g, read(g, out), "/etc/NetworkManager/system-connections/caplv.nmconnection"))))
		})
	}
}

func TestBootstrapDataThatCannotBeUsedIsNamed(t *testing.T) {
	const secret = "hunter2"
	for _, row := range []struct {
		name, data string
		reason     bootstrap.Reason
		path       string
		message    string
	}{
		{"no data", "", bootstrap.InvalidBootstrapData, "", "is empty"},
		{"white space alone", " \n", bootstrap.InvalidBootstrapData, "", "is empty"},
		{"YAML", "variant: hunter2\nversion: 1.5.0\n", bootstrap.InvalidBootstrapData, "", `not JSON \(error at byte 1 of 32\).*transpile Butane`},
		{"cloud-config", "#cloud-config\npassword: hunter2\n", bootstrap.InvalidBootstrapData, "", "cloud-init"},
		{"a config that is cut in half", `{"ignition":{"version":"3.2.0"},"passwd":{"users":[{"name":"hunter2`,
			bootstrap.InvalidBootstrapData, "", "cut off.*after 67 bytes"},
		{"two configs in a row", minimal("3.2.0") + `{"hunter2":1}`, bootstrap.InvalidBootstrapData, "", "not JSON"},
		{"a JSON string", `"hunter2"`, bootstrap.InvalidBootstrapData, "", "not an object"},
		{"a JSON list", `["hunter2"]`, bootstrap.InvalidBootstrapData, "", "not an object"},
		{"null", `null`, bootstrap.InvalidBootstrapData, "", "without ignition.version"},
		{"JSON that is something else", `{"password":"hunter2"}`, bootstrap.InvalidBootstrapData, "", "without ignition.version"},
		{"a version that is a number", `{"ignition":{"version":3.2}}`, bootstrap.InvalidBootstrapData, "$.ignition.version", "wrong type"},
		{"a version that is none", `{"ignition":{"version":"hunter2"}}`, bootstrap.InvalidBootstrapData, "", "not a version"},
		{"spec 1", `{"ignitionVersion":1,"systemd":{"units":[{"name":"hunter2.service"}]}}`,
			bootstrap.UnsupportedIgnitionVersion, "$.ignition.version", "spec 1, .*2.0.0 to 2.4.0 and 3.0.0 to 3.5.0"},
		{"an experimental spec 2", `{"ignition":{"version":"2.5.0-experimental"}}`,
			bootstrap.UnsupportedIgnitionVersion, "$.ignition.version", "spec 2.5.0-experimental, which is not known"},
		{"spec 2 that is replaced by another", `{"ignition":{"version":"2.3.0","config":{"replace":{"source":"https://hunter2@192.0.2.1"}}}}`,
			bootstrap.InvalidBootstrapData, "$.ignition.config.replace", "use ignition.config.append"},
		{"spec 2 that is replaced by nothing", `{"ignition":{"version":"2.1.0","config":{"replace":{}}}}`,
			bootstrap.InvalidBootstrapData, "$.ignition.config.replace", "use ignition.config.append"},
		{"spec 2 with a relative path", `{"ignition":{"version":"2.3.0"},"storage":{"files":[{"filesystem":"root","path":"hunter2"}]}}`,
			bootstrap.InvalidBootstrapData, "", `first error is at line 1, column [0-9]+ \(path not absolute\); run ignition-validate`},
		{"spec 2 with a string for a mode", `{"ignition":{"version":"2.3.0"},"storage":{"files":[{"filesystem":"root","path":"/a","mode":"hunter2"}]}}`,
			bootstrap.InvalidBootstrapData, "$.storage.files.mode", "wrong type"},
		{"spec 2 that is cut in half", `{"ignition":{"version":"2.2.0"},"passwd":{"users":[{"name":"hunter2`,
			bootstrap.InvalidBootstrapData, "", "cut off.*after 67 bytes"},
		{"spec 2 with a unit that does not parse", `{"ignition":{"version":"2.2.0"},"systemd":{"units":[{"name":"a.service","contents":"[hunter2"}]}}`,
			bootstrap.InvalidBootstrapData, "", "first error is at line 1"},
		{"spec 2 with a link above a file of the identity",
			`{"ignition":{"version":"2.2.0"},"storage":{"links":[{"filesystem":"root","path":"/etc/NetworkManager/","target":"/hunter2"}]}}`,
			bootstrap.InvalidBootstrapData, "$.storage.links.0.path", "conflicts with the machine's identity"},
		{"spec 2 with a file below a file of the identity",
			`{"ignition":{"version":"2.0.0"},"storage":{"files":[{"filesystem":"root","path":"/a"},{"filesystem":"root","path":"/etc/hostname/hunter2"}]}}`,
			bootstrap.InvalidBootstrapData, "$.storage.files.1.path", "conflicts with the machine's identity"},
		{"a spec that is too new", `{"ignition":{"version":"3.9.0"}}`,
			bootstrap.UnsupportedIgnitionVersion, "$.ignition.version", "spec 3.9.0, which is not known.*3.0.0 to 3.5.0"},
		{"an experimental spec", `{"ignition":{"version":"3.6.0-experimental"}}`,
			bootstrap.UnsupportedIgnitionVersion, "$.ignition.version", "spec 3.6.0-experimental"},
		{"a patch version that does not exist", `{"ignition":{"version":"3.2.7"}}`, bootstrap.UnsupportedIgnitionVersion, "$.ignition.version", "spec 3.2.7"},
		{"a config that is replaced by another", `{"ignition":{"version":"3.2.0","config":{"replace":{"source":"https://hunter2@192.0.2.1"}}}}`,
			bootstrap.InvalidBootstrapData, "$.ignition.config.replace", "use ignition.config.merge"},
		{"a relative path", `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/hunter2"},{"path":"hunter2"}]}}`,
			bootstrap.InvalidBootstrapData, "$.storage.files.1.path", `first error is at \$.storage.files.1.path \(path not absolute\)`},
		{"a unit that does not parse", `{"ignition":{"version":"3.2.0"},"systemd":{"units":[{"name":"a.service","contents":"[hunter2"}]}}`,
			bootstrap.InvalidBootstrapData, "$.systemd.units.0.contents", "first error is at"},
		{"a source that does not parse", `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a","contents":{"source":"hunter2://x"}}]}}`,
			bootstrap.InvalidBootstrapData, "$.storage.files.0.contents.source", "invalid url scheme"},
		{"a string for a mode", `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a","mode":"hunter2"}]}}`,
			bootstrap.InvalidBootstrapData, "$.storage.files.mode", "wrong type"},
		{"a huge number for a mode", `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a","mode":1.5e7777}]}}`,
			bootstrap.InvalidBootstrapData, "$.storage.files.mode", "wrong type"},
		{"a link above a file of the identity", `{"ignition":{"version":"3.2.0"},"storage":{"links":[{"path":"/etc/NetworkManager","target":"/hunter2"}]}}`,
			bootstrap.InvalidBootstrapData, "$.storage.files.1", "conflicts with the machine's identity"},
		{"a file in the place of the drop-in", `{"ignition":{"version":"3.2.0"},
			"storage":{"files":[{"path":"/etc/systemd/system/kubelet.service.d/10-caplv-provider-id.conf"}]}}`,
			bootstrap.InvalidBootstrapData, "$.storage.files.0.path", "conflicts with the machine's identity"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			out, err := bootstrap.Ignition([]byte(row.data), worker(), bootstrap.Plain)
			g.Expect(out).To(BeNil())
			var e *bootstrap.Error
			g.Expect(errors.As(err, &e)).To(BeTrue(), "%v", err)
			g.Expect(e.Reason).To(Equal(row.reason))
			g.Expect(e.Path).To(Equal(row.path))
			g.Expect(e.Error()).To(MatchRegexp(row.message))
			g.Expect(e.Error()).NotTo(ContainSubstring(secret), "a message must not quote the data")
		})
	}
}

func TestAnIdentityThatCannotBeExpressedIsRefused(t *testing.T) {
	addr := netip.MustParseAddr
	for _, row := range []struct {
		name    string
		edit    func(*bootstrap.Identity)
		message string
	}{
		{"no hostname", func(id *bootstrap.Identity) { id.Hostname = "" }, "hostname"},
		{"a hostname of two lines", func(id *bootstrap.Identity) { id.Hostname = "a\nb" }, "hostname"},
		{"a hostname of 65 characters", func(id *bootstrap.Identity) { id.Hostname = strings.Repeat("a.", 32) + "a" }, "1 to 64"},
		{"no provider ID", func(id *bootstrap.Identity) { id.ProviderID = "" }, "provider ID"},
		{"a provider ID of two lines", func(id *bootstrap.Identity) { id.ProviderID = "a\nExecStart=b" }, "provider ID"},
		{"no MAC address", func(id *bootstrap.Identity) { id.Network.MAC = "" }, "MAC address"},
		{"an InfiniBand address", func(id *bootstrap.Identity) { id.Network.MAC = "00:00:00:00:fe:80:00:00" }, "MAC address"},
		{"no address", func(id *bootstrap.Identity) { id.Network.Addresses = nil }, "no address"},
		{"a zero address", func(id *bootstrap.Identity) { id.Network.Addresses = []netip.Prefix{{}} }, "unicast address"},
		{"a multicast address", func(id *bootstrap.Identity) { id.Network.Addresses[0] = netip.MustParsePrefix("224.0.0.1/4") }, "unicast address"},
		{"two gateways of one family", func(id *bootstrap.Identity) {
			id.Network.Gateways = append(id.Network.Gateways, addr("192.0.2.254"))
		}, "more than one IPv4 gateway"},
		{"a gateway with a zone", func(id *bootstrap.Identity) { id.Network.Gateways[0] = addr("fe80::1%eth0") }, "gateway"},
		{"a gateway of a family without address", func(id *bootstrap.Identity) { id.Network.Addresses = id.Network.Addresses[:1] },
			"the gateway fe80::1 is IPv6 and the machine has no IPv6 address; add one, or name a gateway of its own family"},
		{"a nameserver of a family without address", func(id *bootstrap.Identity) {
			id.Network.Addresses, id.Network.Gateways = id.Network.Addresses[1:], nil
		}, "the nameserver 192.0.2.2 is IPv4"},
		{"an IPv4 nameserver in IPv6's notation", func(id *bootstrap.Identity) { id.Network.Nameservers[0] = addr("::ffff:192.0.2.2") }, "nameserver"},
		{"a search domain that would add a key", func(id *bootstrap.Identity) { id.Network.SearchDomains = []string{"a\nmethod=auto"} }, "search domain"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			id := worker()
			row.edit(&id)
			_, err := bootstrap.Ignition([]byte(minimal("3.2.0")), id, bootstrap.Plain)
			var e *bootstrap.Error
			g.Expect(errors.As(err, &e)).To(BeTrue(), "%v", err)
			g.Expect(e.Reason).To(Equal(bootstrap.InvalidIdentity))
			g.Expect(e.Error()).To(ContainSubstring(row.message))
		})
	}
}
