// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudinit_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/bootstrap"
)

// seen is what cloud-init makes of an image; see nocloud.py.
type seen struct {
	InstanceID  string            `json:"instanceID"`
	Hostname    string            `json:"hostname"`
	UserData    []byte            `json:"userData"`
	UserParts   []part            `json:"userParts"`
	VendorParts []part            `json:"vendorParts"`
	Template    string            `json:"template"`
	Files       map[string]string `json:"files"`
}

type part struct {
	Type    string `json:"type"`
	Content []byte `json:"content"`
}

const (
	netplan   = "etc/netplan/50-cloud-init.yaml"
	keyfile   = "etc/NetworkManager/system-connections/cloud-init-enp1s0.nmconnection"
	ifcfg     = "etc/sysconfig/network-scripts/ifcfg-enp1s0"
	userData  = "#cloud-config\nruncmd: [kubeadm join]\n"
	template  = "## template: jinja\n#cloud-config\n{{ ds.meta_data.provider_id }} {{ ds.meta_data.local_hostname }}\n"
	rendering = "#cloud-config\nlibvirt://host-a/3f0c8a4e-6f0e-5a59-9d0e-3e1d1f9b7a11 default-prod-worker01\n"
)

func identity() bootstrap.Identity {
	return bootstrap.Identity{
		Hostname:   "default-prod-worker01",
		ProviderID: "libvirt://host-a/3f0c8a4e-6f0e-5a59-9d0e-3e1d1f9b7a11",
		InstanceID: "3f0c8a4e-6f0e-5a59-9d0e-3e1d1f9b7a11",
		Network: bootstrap.Network{
			// As a number to base 60 it would be valid YAML of another type.
			MAC:           "52:54:00:12:34:56",
			Addresses:     []netip.Prefix{netip.MustParsePrefix("192.0.2.50/24"), netip.MustParsePrefix("2001:db8::50/64")},
			Gateways:      []netip.Addr{netip.MustParseAddr("fe80::1"), netip.MustParseAddr("192.0.2.1")},
			Nameservers:   []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2")},
			SearchDomains: []string{"example.com", "corp.example.com"},
		},
	}
}

// look makes an image and has cloud-init read it.
func look(t *testing.T, data []byte, id bootstrap.Identity) seen {
	t.Helper()
	g := NewWithT(t)
	image, err := bootstrap.CloudInit(data, id)
	g.Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(t.TempDir(), "seed.iso")
	g.Expect(os.WriteFile(path, image, 0o600)).To(Succeed())

	fetch := exec.CommandContext(t.Context(), "./fetch.sh")
	fetch.Stderr = os.Stderr
	directory, err := fetch.Output()
	g.Expect(err).NotTo(HaveOccurred())
	var complaints bytes.Buffer
	command := exec.CommandContext(t.Context(), "/usr/bin/python3", "-B", "nocloud.py", path, id.Network.MAC, template)
	command.Env = append(os.Environ(), "PYTHONPATH="+strings.TrimSpace(string(directory)))
	command.Stderr = &complaints
	output, err := command.Output()
	g.Expect(err).NotTo(HaveOccurred(), "%s", &complaints)
	var s seen
	g.Expect(json.Unmarshal(output, &s)).To(Succeed())
	return s
}

func TestCloudInitFindsTheIdentity(t *testing.T) {
	g := NewWithT(t)
	s := look(t, []byte(userData), identity())
	g.Expect(s.InstanceID).To(Equal("3f0c8a4e-6f0e-5a59-9d0e-3e1d1f9b7a11"))
	g.Expect(s.Hostname).To(ContainSubstring("default-prod-worker01"))
	g.Expect(s.Template).To(Equal(rendering), "templates must find the provider ID")
	g.Expect(string(s.UserData)).To(Equal(userData))
	g.Expect(s.UserParts).To(Equal([]part{{"text/cloud-config", []byte(userData)}}))
	g.Expect(s.VendorParts).To(HaveLen(1))
	g.Expect(s.VendorParts[0].Type).To(Equal("text/cloud-boothook"))
}

func TestCloudInitConfiguresBothFamiliesWithEachOfItsRenderers(t *testing.T) {
	g := NewWithT(t)
	s := look(t, []byte(userData), identity())
	for _, line := range []string{
		"macaddress: '52:54:00:12:34:56'", "- 192.0.2.50/24", "- 2001:db8::50/64", "gateway4: 192.0.2.1", "gateway6: fe80::1",
		"- 192.0.2.2", "- 2001:db8::2", "- corp.example.com", "dhcp4: false", "dhcp6: false", "accept-ra: false",
	} {
		g.Expect(s.Files[netplan]).To(MatchRegexp(`(?m)^ *` + strings.ReplaceAll(line, "'", "['\"]?") + `$`))
	}
	ipv4, ipv6, found := strings.Cut(s.Files[keyfile], "[ipv6]")
	g.Expect(found).To(BeTrue())
	g.Expect(ipv4).To(ContainSubstring("mac-address=52:54:00:12:34:56"))
	for _, line := range []string{"method=manual", "address1=192.0.2.50/24", "gateway=192.0.2.1", "dns=192.0.2.2;", "dns-search=example.com;corp.example.com;"} {
		g.Expect(ipv4).To(ContainSubstring(line + "\n"))
	}
	for _, line := range []string{"method=manual", "address1=2001:db8::50/64", "gateway=fe80::1", "dns=2001:db8::2;"} {
		g.Expect(ipv6).To(ContainSubstring(line + "\n"))
	}
	for _, line := range []string{
		"BOOTPROTO=none", "HWADDR=52:54:00:12:34:56", "IPADDR=192.0.2.50", "NETMASK=255.255.255.0", "GATEWAY=192.0.2.1",
		"IPV6ADDR=2001:db8::50/64", "IPV6_DEFAULTGW=fe80::1", "DNS1=192.0.2.2", "DNS2=2001:db8::2",
	} {
		g.Expect(s.Files[ifcfg]).To(ContainSubstring("\n" + line + "\n"))
	}
}

func TestCloudInitConfiguresOneFamily(t *testing.T) {
	g := NewWithT(t)
	id := identity()
	n := &id.Network
	n.Addresses, n.Gateways, n.Nameservers = n.Addresses[1:], n.Gateways[:1], n.Nameservers[1:]
	s := look(t, []byte(userData), id)
	for _, file := range []string{netplan, keyfile, ifcfg} {
		g.Expect(s.Files[file]).To(ContainSubstring("2001:db8::50/64"))
		g.Expect(s.Files[file]).NotTo(ContainSubstring("192.0.2."))
	}
}

func TestCloudInitReachesAGatewayOutsideThePrefix(t *testing.T) {
	g := NewWithT(t)
	id := identity()
	id.Network.Addresses = []netip.Prefix{netip.MustParsePrefix("192.0.2.50/32"), netip.MustParsePrefix("2001:db8::50/128")}
	id.Network.Gateways = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	plan := look(t, []byte(userData), id).Files[netplan]
	g.Expect(plan).To(MatchRegexp(`on-link: true\s+to: 0\.0\.0\.0/0\s+via: 192\.0\.2\.1`))
	g.Expect(plan).To(MatchRegexp(`on-link: true\s+to: ::/0\s+via: 2001:db8::1`))
}

func TestCloudInitReadsEveryFormatOfUserData(t *testing.T) {
	const script = "#!/bin/sh\nexit 0\n"
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	_, _ = writer.Write([]byte(userData))
	_ = writer.Close()
	for _, row := range []struct {
		name  string
		data  []byte
		parts []part
	}{
		{"a script", []byte(script), []part{{"text/x-shellscript", []byte(script)}}},
		{"MIME of several parts", []byte("Content-Type: multipart/mixed; boundary=\"b\"\nMIME-Version: 1.0\n\n" +
			"--b\nContent-Type: text/x-shellscript\n\n" + script + "\n--b\nContent-Type: text/cloud-config\n\n" + userData + "\n--b--\n"),
			[]part{{"text/x-shellscript", []byte(script)}, {"text/cloud-config", []byte(userData)}}},
		{"compressed cloud-config", packed.Bytes(), []part{{"text/cloud-config", []byte(userData)}}},
		{"a template", []byte(template), []part{{"text/jinja2", []byte(template)}}},
		{"a boothook", []byte("#cloud-boothook\n" + script), []part{{"text/cloud-boothook", []byte("#cloud-boothook\n" + script)}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			s := look(t, row.data, identity())
			g.Expect(s.UserData).To(Equal(row.data))
			g.Expect(s.UserParts).To(Equal(row.parts))
			g.Expect(s.Hostname).To(ContainSubstring("default-prod-worker01"))
			g.Expect(s.VendorParts).To(HaveLen(1), "the vendor-data goes beside whatever the user-data is")
		})
	}
}
