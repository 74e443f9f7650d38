// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"fmt"
	"net"
	"strings"
)

const (
	hostnamePath = "/etc/hostname"
	hostnameMode = 0o644
	keyfilePath  = "/etc/NetworkManager/system-connections/caplv.nmconnection"
	// keyfileMode: NetworkManager ignores a keyfile that others may read.
	keyfileMode = 0o600

	kubeletUnit   = "kubelet.service"
	kubeletDropin = "10-caplv-provider-id.conf"
	dropinPath    = "/etc/systemd/system/" + kubeletUnit + ".d/" + kubeletDropin

	// autoconnectPriority lies above the default connection that the initramfs leaves behind (-100) and above profiles
	// that set none (0), and below the one by which OpenShift's configure-ovs.sh moves the interface into br-ex (100):
	// that one must win, or a worker loses its pod network at the second boot.
	autoconnectPriority = 50
)

// providerIDDropin gives the kubelet's unit the variable that OpenShift's workers read in --provider-id.
func providerIDDropin(providerID string) string {
	return "[Service]\nEnvironment=" + systemdQuote("KUBELET_PROVIDERID="+providerID) + "\n"
}

// systemdQuote quotes s as one word of an Environment= line: C-style escapes within double quotes, and a doubled percent
// sign because specifiers are expanded there. The dollar sign has no meaning there (systemd.exec(5)). s has no control
// characters.
func systemdQuote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`).Replace(s) + `"`
}

// keyfile returns the NetworkManager connection in the format of nm-settings-keyfile(5). The interface is found by its MAC
// address: its name depends on the machine type and on how many devices there are.
func (n Network) keyfile() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[connection]\nid=caplv\ntype=ethernet\nautoconnect-priority=%d\n", autoconnectPriority)
	// validate has parsed the address; only its notation is changed here.
	mac, _ := net.ParseMAC(n.MAC)
	fmt.Fprintf(&b, "\n[ethernet]\nmac-address=%s\n", mac)
	n.writeFamily(&b, ipv4)
	n.writeFamily(&b, ipv6)
	return b.String()
}

// writeFamily writes the section of one family. A family without an address is disabled, IPv6 too, as NetworkManager's own
// initramfs generator does for a static configuration. "ignore" would leave IPv6 to the kernel, which takes an address from
// any router advertisement: the node would have an address that no one has given it, that its status does not show, and
// that makes the approval of its serving certificate fail.
//
// The gateway may lie outside the prefixes of all addresses (a prefix of full length, a link-local gateway): NetworkManager adds
// the route to it by itself.
func (n Network) writeFamily(b *strings.Builder, f family) {
	fmt.Fprintf(b, "\n[%s]\n", strings.ToLower(string(f)))
	addresses := n.addresses(f)
	if len(addresses) == 0 {
		b.WriteString("method=disabled\n")
		return
	}
	b.WriteString("method=manual\n")
	for i, prefix := range addresses {
		fmt.Fprintf(b, "address%d=%s", i+1, prefix)
		if gateway := ofFamily(n.Gateways, f); i == 0 && len(gateway) > 0 {
			b.WriteString("," + gateway[0])
		}
		b.WriteString("\n")
	}
	writeList(b, "dns", ofFamily(n.Nameservers, f))
	writeList(b, "dns-search", n.SearchDomains)
	// The connection counts as up when every family is, which for IPv6 means that its address has been found to be unique.
	// Otherwise network-online.target, and with it the kubelet and OpenShift's scripts, could see a node of one family.
	b.WriteString("may-fail=false\n")
}

func writeList(b *strings.Builder, key string, values []string) {
	if len(values) > 0 {
		fmt.Fprintf(b, "%s=%s;\n", key, strings.Join(values, ";"))
	}
}
