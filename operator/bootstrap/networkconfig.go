// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"net"
	"net/netip"
)

// interfaceKey names the interface within the network configuration. The guest finds it by its MAC address and keeps its name.
const interfaceKey = "eth0"

// networkConfig is cloud-init's network configuration, version 2, which is that of netplan.
type networkConfig struct {
	Version   int                 `json:"version"`
	Ethernets map[string]ethernet `json:"ethernets"`
}

type ethernet struct {
	Match struct {
		MACAddress string `json:"macaddress"`
	} `json:"match"`
	DHCP4 bool `json:"dhcp4"`
	DHCP6 bool `json:"dhcp6"`
	// AcceptRA is false: the node has the addresses and routes that it has been given, and no others.
	AcceptRA  bool           `json:"accept-ra"`
	Addresses []netip.Prefix `json:"addresses"`
	// Gateway4 and Gateway6 are netplan's older form of default routes. Everything reads them, while cloud-init before 24.1
	// makes ::/64 of a route to ::/0 unless it hands the configuration to netplan.
	Gateway4 netip.Addr `json:"gateway4,omitzero"`
	Gateway6 netip.Addr `json:"gateway6,omitzero"`
	// Routes are the default routes by gateways outside all prefixes, which the older form cannot express.
	Routes      []route      `json:"routes,omitempty"`
	Nameservers *nameservers `json:"nameservers,omitempty"`
}

type route struct {
	// To is a prefix: older versions of netplan and cloud-init do not know "default".
	To     netip.Prefix `json:"to"`
	Via    netip.Addr   `json:"via"`
	OnLink bool         `json:"on-link"`
}

type nameservers struct {
	Addresses []netip.Addr `json:"addresses,omitempty"`
	Search    []string     `json:"search,omitempty"`
}

// networkConfig returns the configuration as JSON, which is YAML. In YAML's own style a MAC address may be a number.
func (n Network) networkConfig() []byte {
	e := ethernet{Addresses: n.Addresses}
	// validate has parsed the address; cloud-init compares it in lower case.
	mac, _ := net.ParseMAC(n.MAC)
	e.Match.MACAddress = mac.String()
	for _, gateway := range n.Gateways {
		switch f := familyOf(gateway); {
		case !n.contains(gateway):
			e.Routes = append(e.Routes, route{To: everywhere(f), Via: gateway, OnLink: true})
		case f == ipv4:
			e.Gateway4 = gateway
		default:
			e.Gateway6 = gateway
		}
	}
	if len(n.Nameservers) > 0 || len(n.SearchDomains) > 0 {
		e.Nameservers = &nameservers{Addresses: n.Nameservers, Search: n.SearchDomains}
	}
	return indented(networkConfig{Version: 2, Ethernets: map[string]ethernet{interfaceKey: e}})
}

// contains reports whether an address can be reached by what the interface's own addresses say. A link-local one always can.
func (n Network) contains(addr netip.Addr) bool {
	if addr.IsLinkLocalUnicast() {
		return true
	}
	for _, prefix := range n.Addresses {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

func everywhere(f family) netip.Prefix {
	if f == ipv4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}
