// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"maps"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// network is the network of a machine with these addresses, and more of its fields.
func network(addresses []any, more ...fields) fields {
	n := fields{"type": "bridge", "name": "br0", "addresses": addresses}
	for _, m := range more {
		maps.Copy(n, m)
	}
	return n
}

type fields = map[string]any

func nameservers(addresses ...any) fields { return map[string]any{"nameservers": addresses} }

func TestMachinesByThemselves(t *testing.T) {
	label := []string{"metadata", "labels"}
	check(t, machineYAML, []row{
		{"the smallest machine is accepted", nil, nil, nil},
		{"a name of 253 characters is accepted, because it is cut", []string{"metadata", "name"}, strings.Repeat("a.b-", 63) + "c", nil},
		{"a Cluster's name is accepted", label, map[string]any{"cluster.x-k8s.io/cluster-name": "prod.eu-1"}, nil},
		{"a label that names no Cluster is refused", label, map[string]any{"cluster.x-k8s.io/cluster-name": "Prod_1"},
			[]string{`metadata.labels[cluster.x-k8s.io/cluster-name]: Invalid value: "Prod_1"`, "give the name of the Cluster"}},
		{"a host in another namespace cannot be named", spec("hostRef", "name"), "other/host",
			[]string{`spec.hostRef.name: Invalid value: "other/host"`, "no LibvirtHost can have this name", "in the same namespace"}},
		{"a provider ID of this provider is accepted, as it is restored with its object", spec("providerID"), "libvirt://host/1", nil},
		{"a provider ID of another provider is refused", spec("providerID"), "aws:///i-1",
			[]string{`spec.providerID: Invalid value: "aws:///i-1"`, "leave the field out"}},
		{"a provider ID without anything in it is refused", spec("providerID"), "libvirt://",
			[]string{`spec.providerID: Invalid value: "libvirt://"`, "leave the field out"}},
		{"a data disk cannot have the root disk's name", spec("additionalDisks"), []any{
			map[string]any{"name": "data", "size": "1Gi", "storagePool": "p"}, map[string]any{"name": "root", "size": "1Gi", "storagePool": "p"}},
			[]string{`spec.additionalDisks[1].name: Invalid value: "root"`, "choose another one"}},
	})
}

func TestAddresses(t *testing.T) {
	refused := func(address string, want ...string) row {
		return row{address + " is refused", spec("network"), network([]any{address}),
			append([]string{`spec.network.addresses[0]: Invalid value: "` + address + `"`}, want...)}
	}
	accepted := func(address string) row {
		return row{address + " is accepted", spec("network"), network([]any{address}), nil}
	}
	check(t, machineYAML, []row{
		refused("192.0.2.0/24", "network itself", "such as 192.0.2.1/24"),
		refused("192.0.2.255/24", "broadcast address", "such as 192.0.2.254/24"),
		refused("192.0.2.64/26", "network itself", "such as 192.0.2.65/26"),
		refused("192.0.2.127/26", "broadcast address", "such as 192.0.2.126/26"),
		refused("255.255.255.255/32", "broadcast address"),
		refused("0.0.0.0/24", "stands for none"),
		refused("127.0.0.1/8", "loopback"),
		refused("224.0.0.1/24", "multicast"),
		refused("192.0.2.50/0", "prefix length is 0", "such as 192.0.2.50/24"),
		refused("2001:db8::/64", "network itself", "such as 2001:db8::1/64"),
		refused("::1/128", "loopback"),
		refused("ff02::1/64", "multicast"),
		refused("::/64", "stands for none"),
		accepted("192.0.2.0/31"),
		accepted("192.0.2.1/31"),
		accepted("192.0.2.50/32"),
		accepted("192.0.2.255/23"),
		accepted("2001:db8::ffff/112"),
		accepted("2001:db8::/127"),
		accepted("2001:db8::/128"),
		{"an address with two prefix lengths is refused", spec("network"), network([]any{"192.0.2.50/24", "192.0.2.50/25"}),
			[]string{`spec.network.addresses[1]: Invalid value: "192.0.2.50/25"`, "listed twice"}},
		{"an IPv6 address in two spellings is refused", spec("network"), network([]any{"2001:db8::1/64", "2001:DB8:0::1/64"}),
			[]string{`spec.network.addresses[1]: Invalid value: "2001:DB8:0::1/64"`, "listed twice"}},
		{"two addresses of one subnet are accepted", spec("network"), network([]any{"192.0.2.50/24", "192.0.2.51/24", "2001:db8::1/64"}), nil},
	})
}

func TestGatewaysNameserversAndMACs(t *testing.T) {
	v4, v6 := []any{"192.0.2.50/24"}, []any{"2001:db8::50/64"}
	both := append(append([]any{}, v4...), v6...)
	check(t, machineYAML, []row{
		{"a dual-stack machine has two gateways", spec("network"), network(both, fields{"gateway": "192.0.2.1", "ipv6Gateway": "2001:db8::1"}), nil},
		{"an IPv6 gateway may be link-local", spec("network"), network(both, fields{"gateway": "192.0.2.1", "ipv6Gateway": "fe80::1"}), nil},
		{"an IPv6 machine names its gateway in either field", spec("network"), network(v6, fields{"ipv6Gateway": "2001:db8::1"}), nil},
		{"the machine itself is no gateway", spec("network"), network(v4, fields{"gateway": "192.0.2.50"}),
			[]string{`spec.network.gateway: Invalid value: "192.0.2.50"`, "own address"}},
		{"a network address is no gateway", spec("network"), network(v4, fields{"gateway": "192.0.2.0"}),
			[]string{`spec.network.gateway: Invalid value: "192.0.2.0"`, "network or the broadcast address of 192.0.2.0/24"}},
		{"a broadcast address is no gateway", spec("network"), network(v4, fields{"gateway": "192.0.2.255"}),
			[]string{`spec.network.gateway: Invalid value: "192.0.2.255"`, "network or the broadcast address of 192.0.2.0/24"}},
		{"a link-local IPv6 gateway needs an IPv6 address", spec("network"), network(v4, fields{"gateway": "fe80::1"}),
			[]string{`spec.network.gateway: Invalid value: "fe80::1"`, "has no IPv6 address"}},
		{"an IPv6 gateway needs an IPv6 address", spec("network"), network(v4, fields{"ipv6Gateway": "2001:db8::1"}),
			[]string{`spec.network.ipv6Gateway: Invalid value: "2001:db8::1"`, "has no IPv6 address"}},
		{"an IPv6 gateway outside the subnets is refused", spec("network"), network(both, fields{"ipv6Gateway": "2001:db8:1::1"}),
			[]string{`spec.network.ipv6Gateway: Invalid value: "2001:db8:1::1"`, "must lie in the subnet"}},
		{"an unspecified gateway is refused", spec("network"), network(both, fields{"ipv6Gateway": "::"}),
			[]string{`spec.network.ipv6Gateway: Invalid value: "::"`, "no router can have this address"}},
		{"two IPv6 gateways are refused", spec("network"), network(v6, fields{"gateway": "2001:db8::1", "ipv6Gateway": "2001:db8::2"}),
			[]string{`spec.network.ipv6Gateway: Invalid value: "2001:db8::2"`, "gateway is 2001:db8::1", "remove one"}},

		{"a nameserver of a family that the machine has is accepted", spec("network"), network(both, fields{"dns": nameservers("192.0.2.1", "2001:db8::53")}), nil},
		{"a nameserver of the guest itself is accepted", spec("network"), network(v4, fields{"dns": nameservers("127.0.0.53", "::1")}), nil},
		{"an IPv6 nameserver needs an IPv6 address", spec("network"), network(v4, fields{"dns": nameservers("192.0.2.1", "2001:db8::53")}),
			[]string{`spec.network.dns.nameservers[1]: Invalid value: "2001:db8::53"`, "no IPv6 address"}},
		{"an IPv4 nameserver needs an IPv4 address", spec("network"), network(v6, fields{"dns": nameservers("192.0.2.1")}),
			[]string{`spec.network.dns.nameservers[0]: Invalid value: "192.0.2.1"`, "no IPv4 address"}},
		{"a multicast nameserver is refused", spec("network"), network(v4, fields{"dns": nameservers("224.0.0.251")}),
			[]string{`spec.network.dns.nameservers[0]: Invalid value: "224.0.0.251"`, "no DNS server"}},

		{"a MAC address in upper case is accepted", spec("network", "macAddress"), "52:54:00:AB:CD:EF", nil},
		{"the null MAC address is refused", spec("network", "macAddress"), "00:00:00:00:00:00",
			[]string{`spec.network.macAddress: Invalid value: "00:00:00:00:00:00"`, "leave the field out"}},
		{"a MAC address that libvirt reserves is refused", spec("network", "macAddress"), "FE:54:00:00:00:01",
			[]string{`spec.network.macAddress: Invalid value: "FE:54:00:00:00:01"`, "begin with 52:54:00"}},
	})
}

func TestNodeMetadata(t *testing.T) {
	const labels, annotations = "nodeLabels", "nodeAnnotations"
	check(t, machineYAML, []row{
		{"labels that a kubelet may not set are accepted", spec(labels), map[string]any{
			"node-role.kubernetes.io/app": "", "k8s.ovn.org/egress-assignable": "", "dynatrace": "true"}, nil},
		{"annotations with any value are accepted", spec(annotations), map[string]any{"example.com/Owner": "the platform's team, 24/7"}, nil},
		{"a label's key with a blank is refused", spec(labels), map[string]any{"a b": "x"},
			[]string{`spec.nodeLabels[a b]: Invalid value: "a b"`, "the key of a label"}},
		{"a label's value with a blank is refused", spec(labels), map[string]any{"a": "x y"},
			[]string{`spec.nodeLabels[a]: Invalid value: "x y"`, "the value of a label must"}},
		{"a label's value of 64 characters is refused", spec(labels), map[string]any{"a": strings.Repeat("x", 64)},
			[]string{`spec.nodeLabels[a]: Invalid value: "` + strings.Repeat("x", 64) + `"`, "the value of a label must be no more than 63"}},
		{"an annotation's key with two slashes is refused", spec(annotations), map[string]any{"a/b/c": "x"},
			[]string{`spec.nodeAnnotations[a/b/c]: Invalid value: "a/b/c"`, "the key of an annotation"}},
		{"annotations of more than 256 KiB are refused", spec(annotations), map[string]any{"a": strings.Repeat("x", 257<<10)},
			[]string{`spec.nodeAnnotations: Too long`, "262144"}},
		{"CAPLV's own books are not written into", spec(annotations), map[string]any{"infrastructure.cluster.x-k8s.io/libvirt-managed-labels": "x"},
			[]string{`spec.nodeAnnotations[infrastructure.cluster.x-k8s.io/libvirt-managed-labels]: Invalid value: "infrastructure.cluster.x-k8s.io/libvirt-managed-labels"`, "CAPLV writes this key"}},
		{"neither are Cluster API's", spec(annotations), map[string]any{"cluster.x-k8s.io/machine": "x"},
			[]string{`spec.nodeAnnotations[cluster.x-k8s.io/machine]: Invalid value: "cluster.x-k8s.io/machine"`, "Cluster API writes this key"}},
	})
}

func TestAllProblemsAreNamedAtOnce(t *testing.T) {
	g := NewWithT(t)
	u := changed(g, machineYAML, spec("network"), network([]any{"192.0.2.0/24", "127.0.0.1/8"}, fields{"gateway": "192.0.2.255", "macAddress": "00:00:00:00:00:00"}))
	u = changed(g, mustYAML(g, u), spec("hostRef", "name"), "Host")
	u = changed(g, mustYAML(g, u), spec("nodeLabels"), map[string]any{"a b": ""})
	err := suite.cp.Client().Create(t.Context(), u, client.DryRunAll)
	for _, path := range []string{"spec.hostRef.name", "spec.network.addresses[0]", "spec.network.addresses[1]", "spec.network.gateway", "spec.network.macAddress", "spec.nodeLabels[a b]"} {
		g.Expect(err).To(MatchError(ContainSubstring(path + ": Invalid value: ")))
	}
}
