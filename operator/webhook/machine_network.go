// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"net"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation/field"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// reservedMACByte begins the MAC addresses that libvirt keeps for the host's side of an interface.
const reservedMACByte = 0xfe

// validateNetwork checks that a machine with these settings could talk to anybody. What does not parse is the schema's
// concern and is passed over.
func validateNetwork(p *field.Path, network *infrav1.NetworkSpec) field.ErrorList {
	var problems field.ErrorList
	var prefixes []netip.Prefix
	seen := map[netip.Addr]bool{}
	for i, address := range network.Addresses {
		prefix, err := netip.ParsePrefix(string(address))
		if err != nil {
			continue
		}
		at := p.Child("addresses").Index(i)
		if problem := whyNoHostAddress(prefix); problem != "" {
			problems = append(problems, field.Invalid(at, address, problem))
		}
		if seen[prefix.Addr()] {
			problems = append(problems, field.Invalid(at, address, "the address is listed twice; keep it once, with the prefix length of its subnet"))
		}
		seen[prefix.Addr()] = true
		prefixes = append(prefixes, prefix)
	}
	problems = append(problems, validateGateways(p, network, prefixes)...)
	for i, nameserver := range network.DNS.Nameservers {
		if problem := whyNoNameserver(string(nameserver), prefixes); problem != "" {
			problems = append(problems, field.Invalid(p.Child("dns", "nameservers").Index(i), nameserver, problem))
		}
	}
	if problem := whyNoMAC(network.MACAddress); problem != "" {
		problems = append(problems, field.Invalid(p.Child("macAddress"), network.MACAddress, problem))
	}
	return problems
}

// whyNoHostAddress says why an address cannot be that of a machine; empty when it can.
func whyNoHostAddress(prefix netip.Prefix) string {
	address := prefix.Addr()
	switch {
	case address.IsUnspecified():
		return "this address stands for none; give the machine's own"
	case address.IsLoopback():
		return "this is a loopback address; give one of the network that the machine is attached to"
	case address.IsMulticast():
		return "this is a multicast address; give a unicast address"
	case address == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "this is the broadcast address; give the machine's own"
	case prefix.Bits() == 0:
		return "the prefix length is 0, which makes every address a neighbour; give the prefix length of the subnet, such as " + address.String() + usualBits(address)
	case !hasReservedAddresses(prefix):
		return ""
	case address == prefix.Masked().Addr():
		return fmt.Sprintf("this is the address of the network itself; give the machine's own, such as %s/%d", address.Next(), prefix.Bits())
	case address.Is4() && address == lastAddress(prefix):
		return fmt.Sprintf("this is the broadcast address of its network; give the machine's own, such as %s/%d", address.Prev(), prefix.Bits())
	}
	return ""
}

// validateGateways checks the gateways against the machine's addresses.
func validateGateways(p *field.Path, network *infrav1.NetworkSpec, prefixes []netip.Prefix) field.ErrorList {
	var problems field.ErrorList
	families := map[bool]bool{}
	for _, gateway := range []struct {
		name  string
		value infrav1.IPAddress
	}{{"gateway", network.Gateway}, {"ipv6Gateway", network.IPv6Gateway}} {
		address, err := netip.ParseAddr(string(gateway.value))
		if err != nil {
			continue
		}
		at := p.Child(gateway.name)
		if problem := whyNoGateway(address, prefixes); problem != "" {
			problems = append(problems, field.Invalid(at, gateway.value, problem))
		}
		if families[address.Is6()] {
			problems = append(problems, field.Invalid(at, gateway.value, fmt.Sprintf(
				"gateway is %s, an %s address as well, and a family has one default gateway; remove one of the two", network.Gateway, family(address))))
		}
		families[address.Is6()] = true
	}
	return problems
}

// whyNoGateway says why a machine with these addresses cannot use a gateway; empty when it can.
func whyNoGateway(gateway netip.Addr, prefixes []netip.Prefix) string {
	if gateway.IsUnspecified() || gateway.IsLoopback() || gateway.IsMulticast() {
		return "no router can have this address; give the router's, or leave the field out"
	}
	reachable := gateway.IsLinkLocalUnicast()
	for _, prefix := range prefixes {
		if prefix.Addr() == gateway {
			return "this is the machine's own address; give the router's"
		}
		if !prefix.Contains(gateway) {
			continue
		}
		reachable = true
		if hasReservedAddresses(prefix) && gateway.Is4() && (gateway == prefix.Masked().Addr() || gateway == lastAddress(prefix)) {
			return fmt.Sprintf("this is the network or the broadcast address of %s; give the router's address", prefix.Masked())
		}
	}
	switch {
	case !hasFamily(prefixes, gateway):
		return fmt.Sprintf("the machine has no %s address; add one to addresses, or remove the gateway", family(gateway))
	case !reachable:
		return "the gateway must lie in the subnet of one of the addresses, or be link-local; correct it or the prefix length of the address"
	}
	return ""
}

// whyNoNameserver says why a machine with these addresses cannot use a nameserver; empty when it can, or when it is none.
func whyNoNameserver(value string, prefixes []netip.Prefix) string {
	nameserver, err := netip.ParseAddr(value)
	switch {
	case err != nil || nameserver.IsLoopback(): // A resolver of the guest's own.
		return ""
	case nameserver.IsUnspecified() || nameserver.IsMulticast():
		return "no DNS server can have this address; give a unicast address"
	case !hasFamily(prefixes, nameserver):
		return fmt.Sprintf("the machine has no %s address to ask this server from; add one to addresses, or remove the nameserver", family(nameserver))
	}
	return ""
}

// whyNoMAC says why libvirt would not take a MAC address; empty when it would, or when there is none.
func whyNoMAC(value string) string {
	mac, err := net.ParseMAC(value)
	switch {
	case err != nil:
		return ""
	case mac.String() == "00:00:00:00:00:00":
		return "no interface has this address; leave the field out to get one that is derived from the machine's UID"
	case mac[0] == reservedMACByte:
		return "libvirt keeps addresses that begin with fe for the host's side; leave the field out, or begin with 52:54:00"
	}
	return ""
}

// hasReservedAddresses says whether the first address of a subnet (and the last, for IPv4) belongs to no host. In the
// smallest subnets all do.
func hasReservedAddresses(prefix netip.Prefix) bool { return prefix.Addr().BitLen()-prefix.Bits() > 1 }

// lastAddress is the highest address of a subnet.
func lastAddress(prefix netip.Prefix) netip.Addr {
	bytes := prefix.Masked().Addr().AsSlice()
	for bit := prefix.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}

func hasFamily(prefixes []netip.Prefix, address netip.Addr) bool {
	for _, prefix := range prefixes {
		if prefix.Addr().Is4() == address.Is4() {
			return true
		}
	}
	return false
}

func family(address netip.Addr) string {
	if address.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// usualBits is the prefix length that a message suggests.
func usualBits(address netip.Addr) string {
	if address.Is4() {
		return "/24"
	}
	return "/64"
}
