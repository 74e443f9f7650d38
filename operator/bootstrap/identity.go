// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"net"
	"net/netip"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Identity is what makes one machine of many that share their bootstrap data.
type Identity struct {
	// Hostname is a DNS name of at most 64 characters, which is Linux's limit.
	Hostname string
	// ProviderID becomes spec.providerID of the machine's Node.
	ProviderID string
	// InstanceID tells cloud-init one machine from the next: with another one it does everything that it does once. It is
	// needed for CloudInit alone.
	InstanceID string
	Network    Network
}

// Network is the static configuration of the machine's interface.
type Network struct {
	// MAC is the interface's 48-bit address, by which the guest finds the interface.
	MAC string
	// Addresses are the interface's addresses with the lengths of their prefixes; at least one.
	Addresses []netip.Prefix
	// Gateways are the default gateways, at most one of each family, each of a family that has an address.
	Gateways []netip.Addr
	// Nameservers are the resolver's servers, each of a family that has an address.
	Nameservers []netip.Addr
	// SearchDomains are appended to short names.
	SearchDomains []string
}

const (
	maxHostname   = 64
	maxProviderID = 512 // The length of Machine.spec.providerID in Cluster API.
	macLength     = 6
)

var (
	hostname = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)
	// searchDomain allows the underscores that resolvers allow, and nothing that has a meaning in a keyfile.
	searchDomain = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*$`)
)

func (id Identity) validate() error {
	if len(id.Hostname) > maxHostname || !hostname.MatchString(id.Hostname) {
		return invalidIdentity("the hostname %q is not a DNS name of 1 to %d lower-case characters", id.Hostname, maxHostname)
	}
	if id.ProviderID == "" || len(id.ProviderID) > maxProviderID || !printable(id.ProviderID) {
		return invalidIdentity("the provider ID %q is not 1 to %d printable characters", id.ProviderID, maxProviderID)
	}
	return id.Network.validate()
}

func (n Network) validate() error {
	if mac, err := net.ParseMAC(n.MAC); err != nil || len(mac) != macLength {
		return invalidIdentity("the MAC address %q is not of the form 52:54:00:12:34:56", n.MAC)
	}
	if len(n.Addresses) == 0 {
		return invalidIdentity("the network has no address: give it at least one, with prefix length, because there is no DHCP")
	}
	for _, prefix := range n.Addresses {
		if !prefix.IsValid() || !usable(prefix.Addr()) {
			return invalidIdentity("the address %s is not an IPv4 or IPv6 unicast address with prefix length", prefix)
		}
	}
	seen := map[family]bool{}
	for _, gateway := range n.Gateways {
		if err := n.reachable("gateway", gateway); err != nil {
			return err
		}
		if f := familyOf(gateway); seen[f] {
			return invalidIdentity("the network has more than one %s gateway; keep one of each family", f)
		}
		seen[familyOf(gateway)] = true
	}
	for _, server := range n.Nameservers {
		if err := n.reachable("nameserver", server); err != nil {
			return err
		}
	}
	for _, domain := range n.SearchDomains {
		if !searchDomain.MatchString(domain) {
			return invalidIdentity("the search domain %q is not a DNS domain such as example.com", domain)
		}
	}
	return nil
}

// reachable checks that addr is an address of a family that the interface has. NetworkManager refuses a whole connection
// with a nameserver or gateway in a family that is disabled.
func (n Network) reachable(what string, addr netip.Addr) error {
	if !usable(addr) {
		return invalidIdentity("the %s %s is not an IPv4 or IPv6 unicast address", what, addr)
	}
	if len(n.addresses(familyOf(addr))) == 0 {
		return invalidIdentity("the %s %s is %s and the machine has no %[3]s address; add one, or name a %[1]s of its own family",
			what, addr, familyOf(addr))
	}
	return nil
}

// usable excludes what a keyfile cannot hold (zones) and what reads as both families (IPv4 mapped into IPv6).
func usable(addr netip.Addr) bool {
	return addr.IsValid() && addr.Zone() == "" && !addr.Is4In6() && !addr.IsUnspecified() && !addr.IsMulticast() && !addr.IsLoopback()
}

// family is an IP family, named as in messages.
type family string

const (
	ipv4 family = "IPv4"
	ipv6 family = "IPv6"
)

func familyOf(addr netip.Addr) family {
	if addr.Is4() {
		return ipv4
	}
	return ipv6
}

func (n Network) addresses(f family) []netip.Prefix {
	var out []netip.Prefix
	for _, prefix := range n.Addresses {
		if familyOf(prefix.Addr()) == f {
			out = append(out, prefix)
		}
	}
	return out
}

func ofFamily(addrs []netip.Addr, f family) []string {
	var out []string
	for _, addr := range addrs {
		if familyOf(addr) == f {
			out = append(out, addr.String())
		}
	}
	return out
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}
