// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/bootstrap"
)

const userData = "#cloud-config\nruncmd: [kubeadm join]\n"

func instance() bootstrap.Identity {
	id := worker()
	id.InstanceID = "3f0c8a4e-6f0e-5a59-9d0e-3e1d1f9b7a11"
	return id
}

// readISO returns the label and the files of an image, as go-diskfs reads them.
func readISO(t *testing.T, image []byte) (label string, files map[string]string) {
	t.Helper()
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "seed.iso")
	g.Expect(os.WriteFile(path, image, 0o600)).To(Succeed())
	storage, err := file.OpenFromPath(path, true)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(storage.Close()).To(Succeed()) }()
	filesystem, err := iso9660.Read(storage, int64(len(image)), 0, 2048)
	g.Expect(err).NotTo(HaveOccurred())
	entries, err := filesystem.ReadDir(".")
	g.Expect(err).NotTo(HaveOccurred())
	files = map[string]string{}
	for _, entry := range entries {
		f, err := filesystem.Open(entry.Name())
		g.Expect(err).NotTo(HaveOccurred())
		content, err := io.ReadAll(f)
		g.Expect(err).NotTo(HaveOccurred())
		files[entry.Name()] = string(content)
	}
	return filesystem.Label(), files
}

func TestTheImageHoldsWhatCloudInitReads(t *testing.T) {
	g := NewWithT(t)
	image, err := bootstrap.CloudInit([]byte(userData), instance())
	g.Expect(err).NotTo(HaveOccurred())
	label, files := readISO(t, image)
	g.Expect(strings.TrimRight(label, " \x00")).To(Equal("cidata"))
	g.Expect(files).To(HaveLen(4))
	g.Expect(files["user-data"]).To(Equal(userData))
	for _, name := range []string{"meta-data", "network-config", "vendor-data"} {
		golden(g, "nocloud-"+name, []byte(files[name]))
	}
}

func TestUserDataOfEveryFormatIsKeptByteForByte(t *testing.T) {
	for name, data := range map[string]string{
		"cloud-config": userData,
		"script":       "#!/bin/sh\nexit 0\n",
		"MIME":         "Content-Type: multipart/mixed; boundary=\"b\"\r\nMIME-Version: 1.0\r\n\r\n--b\r\nContent-Type: text/x-shellscript\r\n\r\n#!/bin/sh\r\n--b--\r\n",
		"jinja":        "## template: jinja\n#cloud-config\nhostname: {{ ds.meta_data.local_hostname }}\n",
		"include":      "#include\nhttps://192.0.2.1/x\n",
		"boothook":     "#cloud-boothook\n#!/bin/sh\n",
		"gzip":         string(gzipBytes(userData)),
		"no newline":   "#cloud-config",
		"one sector":   "#cloud-config\n" + strings.Repeat("#", 2048-14),
		"one more":     "#cloud-config\n" + strings.Repeat("#", 2048-13),
		"large":        "#cloud-config\n" + strings.Repeat("# \xff\x00", 300000),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			image, err := bootstrap.CloudInit([]byte(data), instance())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(len(image) % 2048).To(BeZero())
			g.Expect(image[len(image)-150*2048:]).To(HaveEach(byte(0)), "programs that look for a label read beyond a small file system")
			_, files := readISO(t, image)
			g.Expect(sha256.Sum256([]byte(files["user-data"]))).To(Equal(sha256.Sum256([]byte(data))), "user-data has changed")
		})
	}
}

func TestTheSameInputGivesTheSameImage(t *testing.T) {
	g := NewWithT(t)
	first, err := bootstrap.CloudInit([]byte(userData), instance())
	g.Expect(err).NotTo(HaveOccurred())
	local := time.Local
	defer func() { time.Local = local }()
	time.Local = time.FixedZone("elsewhere", 5*3600+1800)
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
	second, err := bootstrap.CloudInit([]byte(userData), instance())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(bytes.Equal(first, second)).To(BeTrue())
}

func TestNothingIsLeftOfTheImage(t *testing.T) {
	g := NewWithT(t)
	before, err := filepath.Glob("/dev/shm/caplv-*")
	g.Expect(err).NotTo(HaveOccurred())
	t.Setenv("TMPDIR", t.TempDir())
	_, err = bootstrap.CloudInit([]byte(userData), instance())
	g.Expect(err).NotTo(HaveOccurred())
	after, err := filepath.Glob("/dev/shm/caplv-*")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(after).To(Equal(before))
	left, err := os.ReadDir(os.TempDir())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(left).To(BeEmpty())
}

func TestTheNetworkConfiguration(t *testing.T) {
	for _, row := range []struct {
		name, file string
		edit       func(*bootstrap.Network)
	}{
		{"IPv4 alone", "ipv4", func(n *bootstrap.Network) {
			n.Addresses, n.Gateways, n.Nameservers = n.Addresses[:1], n.Gateways[1:], n.Nameservers[:1]
		}},
		{"IPv6 alone", "ipv6", func(n *bootstrap.Network) {
			n.Addresses, n.Gateways, n.Nameservers = n.Addresses[1:], n.Gateways[:1], n.Nameservers[1:2]
		}},
		{"an address alone", "address-only", func(n *bootstrap.Network) { *n = bootstrap.Network{MAC: n.MAC, Addresses: n.Addresses[:1]} }},
		{"gateways outside the prefixes are on the link", "host-prefixes", hostPrefixes},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			id := instance()
			row.edit(&id.Network)
			image, err := bootstrap.CloudInit([]byte(userData), id)
			g.Expect(err).NotTo(HaveOccurred())
			_, files := readISO(t, image)
			golden(g, "nocloud-network-config-"+row.file, []byte(files["network-config"]))
		})
	}
}

// hostPrefixes gives the network addresses with prefixes of full length.
func hostPrefixes(n *bootstrap.Network) {
	n.Addresses = []netip.Prefix{netip.MustParsePrefix("192.0.2.50/32"), netip.MustParsePrefix("2001:db8::50/128")}
	n.Gateways = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
}

func TestUserDataThatCloudInitWouldIgnoreIsNamed(t *testing.T) {
	for _, row := range []struct{ name, data, message string }{
		{"no data", "", "is empty"},
		{"white space alone", " \r\n\t", "is empty"},
		{"nothing, compressed", string(gzipBytes("")), "is empty"},
		{"an Ignition config", `{"ignition":{"version":"3.2.0"},"a":"hunter2"}`, "is an Ignition config.*use the format ignition"},
		{"an Ignition config that is cut in half", ` {"ignition":{"version":"3.2.0"},"a":"hunter2`, "is an Ignition config"},
		{"an Ignition config of spec 1", `{"ignitionVersion":1,"a":"hunter2"}`, "is an Ignition config"},
		{"an Ignition config, compressed", string(gzipBytes(`{"ignition":{"version":"3.2.0"}}`)), "is an Ignition config"},
		{"other JSON", `{"password":"hunter2"}`, "is JSON.*#cloud-config"},
		{"Butane", "variant: fcos\npassword: hunter2\n", "Butane"},
		{"compressed data that is cut off", string(gzipBytes(userData)[:30]), "cut off"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			image, err := bootstrap.CloudInit([]byte(row.data), instance())
			g.Expect(image).To(BeNil())
			var e *bootstrap.Error
			g.Expect(errors.As(err, &e)).To(BeTrue(), "%v", err)
			g.Expect(e.Reason).To(Equal(bootstrap.InvalidBootstrapData))
			g.Expect(e.Error()).To(MatchRegexp(row.message))
			g.Expect(e.Error()).NotTo(ContainSubstring("hunter2"), "a message must not quote the data")
		})
	}
}

func TestAnInstanceIDThatCannotBeExpressedIsRefused(t *testing.T) {
	for _, instanceID := range []string{"", "a/b", "a b", "a\nb", strings.Repeat("a", 129)} {
		g := NewWithT(t)
		id := instance()
		id.InstanceID = instanceID
		_, err := bootstrap.CloudInit([]byte(userData), id)
		var e *bootstrap.Error
		g.Expect(errors.As(err, &e)).To(BeTrue(), "%v", err)
		g.Expect(e.Reason).To(Equal(bootstrap.InvalidIdentity))
		g.Expect(e.Error()).To(ContainSubstring("instance ID"))
	}
	g := NewWithT(t)
	id := instance()
	id.Hostname = "a b"
	_, err := bootstrap.CloudInit([]byte(userData), id)
	g.Expect(err).To(MatchError(ContainSubstring("hostname")))
}

func TestTheVendorDataGivesTheKubeletItsProviderID(t *testing.T) {
	for name, providerID := range map[string]string{"usual": "libvirt://host-a/1", "quotes": "a b\"c\\d`e$f'g%h", "end": "END"} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			id := instance()
			id.ProviderID = providerID
			image, err := bootstrap.CloudInit([]byte(userData), id)
			g.Expect(err).NotTo(HaveOccurred())
			_, files := readISO(t, image)
			script, ok := strings.CutPrefix(files["vendor-data"], "#cloud-boothook\n")
			g.Expect(ok).To(BeTrue())

			// The guest's directories are moved below one of ours, and its systemctl only notes that it was called.
			root := t.TempDir()
			g.Expect(os.MkdirAll(root+"/run/systemd/system", 0o755)).To(Succeed())
			g.Expect(os.Mkdir(root+"/bin", 0o755)).To(Succeed())
			g.Expect(os.WriteFile(root+"/bin/systemctl", []byte("#!/bin/sh\necho \"$@\" >>"+root+"/called\n"), 0o755)).To(Succeed())
			script = strings.NewReplacer("/etc/systemd", root+"/etc/systemd", "/run/systemd", root+"/run/systemd").Replace(script)
			t.Setenv("PATH", root+"/bin:"+os.Getenv("PATH"))
			for range 2 {
				output, err := exec.CommandContext(t.Context(), "sh", "-c", script).CombinedOutput()
				g.Expect(err).NotTo(HaveOccurred(), "%s", output)
			}
			dropin, err := os.ReadFile(root + "/etc/systemd/system/kubelet.service.d/10-caplv-provider-id.conf")
			g.Expect(err).NotTo(HaveOccurred())

			config, err := bootstrap.Ignition([]byte(minimal("3.4.0")), id, bootstrap.Plain)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(dropin)).To(Equal(*read(g, config).Systemd.Units[0].Dropins[0].Contents), "it is the same as with Ignition")
			called, err := os.ReadFile(root + "/called")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(called)).To(Equal(strings.Repeat("daemon-reload\n", 2)))
		})
	}
}
