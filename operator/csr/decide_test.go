// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"net"
	"net/netip"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const providerID = "libvirt://host/11111111-2222-3333-4444-555555555555"

// knownForClient is what is known of a machine that has just started; its Node is not there.
func knownForClient() *Known {
	return &Known{
		Machines: 1,
		Machine: Machine{
			Key: "default/worker01", Owned: true, Started: true, Running: true, RunningSince: start, CreationStarted: start.Add(-time.Minute),
			ProviderID: providerID, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.5"), netip.MustParseAddr("2001:db8::5")},
		},
		Load: Load{Pending: 1, Limit: 101},
		Identities: Identities{
			Names:     []string{"api.example.com", "kubernetes", "kubernetes.default.svc"},
			Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("10.96.0.1")},
		},
	}
}

// knownForServing is what is known when the machine has joined.
func knownForServing() *Known {
	k := knownForClient()
	k.Node = &Node{ProviderID: providerID}
	k.Machine.NodeLinked = true
	return k
}

func addresses(texts ...string) func(*draft) {
	return func(d *draft) {
		d.template.IPAddresses = nil
		for _, text := range texts {
			d.template.IPAddresses = append(d.template.IPAddresses, net.ParseIP(text))
		}
	}
}

func names(names ...string) func(*draft) { return func(d *draft) { d.template.DNSNames = names } }

func made(at time.Time) func(*draft) {
	return func(d *draft) { d.csr.CreationTimestamp = metav1.NewTime(at) }
}

// rule is one row of a table: a request, what is known, and the decision.
type rule struct {
	name   string
	change func(*draft)
	known  func(*Known)
	want   Outcome
	reason Reason
}

func same(*draft) {}
func all(*Known)  {}

// ofMachine are the rules that both kinds of certificates have.
var ofMachine = []rule{
	{"every rule is met", same, all, Approve, Approved},
	{"a node that no machine has (H3)", same, func(k *Known) { k.Machines, k.Machine = 0, Machine{} }, Ignore, UnknownNode},
	{"a node that two machines have (H3)", same, func(k *Known) { k.Machines, k.Machine = 2, Machine{} }, Ignore, AmbiguousNode},
	{"a machine that is being deleted (H4)", same, func(k *Known) { k.Machine.Deleting = true }, Ignore, MachineDeleting},
	{"a machine that was never started (H4)", same, func(k *Known) { k.Machine.Started = false }, Wait, MachineNotStarted},
	{"a machine whose domain does not run (H4)", same, func(k *Known) { k.Machine.Running = false }, Wait, DomainNotRunning},
	{"a machine without owner (H9)", same, func(k *Known) { k.Machine.Owned = false }, Wait, OwnerMissing},
	{"a paused machine", same, func(k *Known) { k.Machine.Paused = true }, Wait, MachinePaused},
	{"as many pending as may be", same, func(k *Known) { k.Load.Pending = 101 }, Approve, Approved},
	{"more pending than may be (H9)", same, func(k *Known) { k.Load.Pending = 102 }, Wait, TooManyPending},
}

var ofClient = []rule{
	{"a machine that Cluster API has linked to a Node (H2)", same, func(k *Known) { k.Machine.NodeLinked = true }, Ignore, NodeAlreadyJoined},
	{"a Node of the machine that exists (H2)", same, func(k *Known) { k.Node = &Node{ProviderID: providerID} }, Ignore, NodeAlreadyJoined},
	{"a Node of another incarnation, or of somebody else (H2, H3)", same, func(k *Known) { k.Node = &Node{ProviderID: "libvirt://host/old"} }, Wait, StaleNode},
	{"a Node without provider ID (H2, H3)", same, func(k *Known) { k.Node = &Node{} }, Wait, StaleNode},
	{"a Node and a machine without provider ID (H2, H3)", same, func(k *Known) { k.Node, k.Machine.ProviderID = &Node{}, "" }, Wait, StaleNode},
	{"made while the machine was created", made(start.Add(-time.Minute - 5*time.Second)), all, Approve, Approved},
	{"made for an earlier incarnation that was deleted a second ago", made(start.Add(-time.Minute - 2*time.Second)), func(k *Known) { k.Machine.Created = start.Add(-time.Minute - time.Second) }, Ignore, OlderThanMachine},
	{"made for an earlier incarnation (H2)", made(start.Add(-time.Minute - 11*time.Second)), all, Ignore, OlderThanMachine},
	{"made within the window", made(start.Add(2 * time.Hour)), all, Approve, Approved},
	{"made after the window (H2)", made(start.Add(2*time.Hour + 11*time.Second)), all, Ignore, TooLate},
	{"the kubelet has asked again since", same, func(k *Known) { k.NewerRequest = "node-csr-2" }, Ignore, Superseded},
	{"another key of this incarnation was approved (H2)", same, func(k *Known) { k.Machine.Approval = &Approval{RequestUID: "other", PublicKeySHA256: "other"} }, Ignore, ApprovedBefore},
	{"the signer has refused the other key", same, func(k *Known) { k.Machine.Approval = &Approval{RequestUID: "other", Failed: true} }, Approve, Approved},
	{"the kubelet has asked again since the approval was recorded", same, func(k *Known) {
		k.NewerRequest, k.Machine.Approval = "node-csr-2", &Approval{RequestUID: "uid-csr"}
	}, Approve, Approved},
	{"the approval of this request was recorded and not carried out", same, func(k *Known) { k.Machine.Approval = &Approval{RequestUID: "uid-csr"} }, Approve, Approved},
}

var ofServing = []rule{
	{"a Node that has not joined (H9)", same, func(k *Known) { k.Node = nil }, Wait, NodeNotJoined},
	{"a Node without provider ID", same, func(k *Known) { k.Node = &Node{} }, Wait, ProviderIDMissing},
	{"a machine without provider ID", same, func(k *Known) { k.Machine.ProviderID = "" }, Wait, ProviderIDMissing},
	{"a Node with another provider ID", same, func(k *Known) { k.Node.ProviderID = "libvirt://host/other" }, Ignore, ForeignProviderID},
	{"a name below the node's (H7)", names(node + ".example.com"), all, Ignore, ForeignName},
	{"a wildcard", names("*"), all, Ignore, ForeignName},
	{"a second name", names(node, "other"), all, Ignore, ForeignName},
	{"the API server's name", names(node, "API.example.com."), all, Ignore, ClusterIdentity},
	{"the API server's name inside the cluster", names(node, "kubernetes.default.svc"), all, Ignore, ClusterIdentity},
	{"a node that is called like the API server", same, func(k *Known) { k.Identities.Names = append(k.Identities.Names, node) }, Ignore, ClusterIdentity},
	{"one of two addresses", addresses("192.0.2.5"), all, Approve, Approved},
	{"an IPv4 address in IPv6's form", addresses("::ffff:192.0.2.5"), all, Approve, Approved},
	{"another node's address (H1)", addresses("192.0.2.5", "192.0.2.6"), all, Ignore, ForeignAddress},
	{"the API server's address (H1)", addresses("192.0.2.5", "192.0.2.1"), all, Ignore, ClusterIdentity},
	{"the API server's address, which the machine declares (H1)", addresses("192.0.2.1"), func(k *Known) {
		k.Machine.Addresses = append(k.Machine.Addresses, netip.MustParseAddr("192.0.2.1"))
	}, Ignore, ClusterIdentity},
	{"the API server's service address, which an EgressIP assigns (H1)", addresses("10.96.0.1"), func(k *Known) {
		k.EgressIPs = EgressIPs{Served: true, Assigned: []netip.Addr{netip.MustParseAddr("10.96.0.1")}}
	}, Ignore, ClusterIdentity},
	{"the loopback address, which the machine declares (H1)", addresses("127.0.0.1"), func(k *Known) {
		k.Machine.Addresses = append(k.Machine.Addresses, netip.MustParseAddr("127.0.0.1"))
	}, Ignore, ForeignAddress},
	{"an address that another Node has, which the machine declares (H1)", same, func(k *Known) {
		k.TakenAddresses = map[netip.Addr]string{netip.MustParseAddr("192.0.2.5"): "other"}
	}, Ignore, AddressInUse},
	{"the API server's addresses are not known", same, func(k *Known) { k.Identities.Unknown = "DNS does not answer" }, Wait, ClusterIdentityUnknown},
	{"an egress IP of the Node", addresses("192.0.2.5", "192.0.2.99"), func(k *Known) {
		k.EgressIPs = EgressIPs{Served: true, Assigned: []netip.Addr{netip.MustParseAddr("192.0.2.99")}}
	}, Approve, Approved},
	{"an address that may become an egress IP of the Node (H9)", addresses("192.0.2.5", "192.0.2.99"), func(k *Known) { k.EgressIPs.Served = true }, Wait, EgressIPNotAssigned},
	{"an address that cannot be an egress IP", addresses("192.0.2.5", "127.0.0.1"), func(k *Known) { k.EgressIPs.Served = true }, Ignore, ForeignAddress},
	{"an approval of a client certificate does not matter", same, func(k *Known) { k.Machine.Approval = &Approval{RequestUID: "other"} }, Approve, Approved},
	{"a renewal long after the start", made(start.Add(300 * 24 * time.Hour)), all, Approve, Approved},
}

func TestARequestIsDecided(t *testing.T) {
	for _, table := range []struct {
		name  string
		draft func() *draft
		known func() *Known
		rules [][]rule
	}{
		{"client", clientDraft, knownForClient, [][]rule{ofMachine, ofClient}},
		{"serving", servingDraft, knownForServing, [][]rule{ofMachine, ofServing}},
	} {
		for _, rules := range table.rules {
			for _, row := range rules {
				t.Run(table.name+": "+row.name, func(t *testing.T) {
					g := NewWithT(t)
					d, k := table.draft(), table.known()
					row.change(d)
					row.known(k)
					request, refused := Parse(d.sign(g))
					g.Expect(refused).To(BeNil())
					got := request.Decide(k)
					g.Expect(got.Reason).To(Equal(row.reason), got.Message)
					g.Expect(got.Outcome).To(Equal(row.want))
					g.Expect(got.Message).NotTo(BeEmpty())
				})
			}
		}
	}
}

func TestTheSameKeyMayAskAgain(t *testing.T) {
	g := NewWithT(t)
	request, _ := Parse(clientDraft().sign(g))
	k := knownForClient()
	k.Machine.Approval = &Approval{RequestUID: "other", PublicKeySHA256: request.PublicKeySHA256}
	g.Expect(request.Decide(k).Outcome).To(Equal(Approve), "the certificate goes to whoever has it already")
}

func TestOnlyYoungRequestsAreLoad(t *testing.T) {
	now := start.Add(24 * time.Hour)
	for _, row := range []struct {
		name            string
		created         []time.Time
		machines, nodes int
		want            Load
	}{
		{"nothing is pending", nil, 0, 0, Load{0, 100}},
		{"an old request does not count", []time.Time{now.Add(-2 * time.Hour), now.Add(-time.Hour), now}, 3, 2, Load{2, 103}},
		{"Nodes count where there are more of them", []time.Time{now.Add(-time.Minute)}, 3, 5, Load{1, 105}},
		{"a request from the future counts", []time.Time{now.Add(time.Hour)}, 0, 0, Load{1, 100}},
	} {
		t.Run(row.name, func(t *testing.T) {
			NewWithT(t).Expect(NewLoad(row.created, row.machines, row.nodes, now)).To(Equal(row.want))
		})
	}
}
