// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// JoinWindow is how long after its domain's start a machine may ask for its first client certificate.
const JoinWindow = 2 * time.Hour

// Decide applies the rules for which more than the request has to be known. It has no clock of its own: all that counts is when the
// request was made, so that one that had to wait is not the worse for it.
func (r *Request) Decide(k *Known) Decision {
	rules := []func(*Known) *Decision{r.checkMachine}
	if r.Serving {
		rules = append(rules, r.checkServingNode, r.checkNames, r.checkIdentities, r.checkAddresses)
	} else {
		rules = append(rules, r.checkJoining, r.checkTime, r.checkApproval, r.checkNewer)
	}
	rules = append(rules, checkLoad)
	for _, rule := range rules {
		if decision := rule(k); decision != nil {
			return *decision
		}
	}
	kind := "client"
	if r.Serving {
		kind = "serving"
	}
	return Decision{Approve, Approved, "kubelet " + kind + " certificate of LibvirtMachine " + k.Machine.Key}
}

// checkMachine requires a machine that CAPLV has started and that runs.
func (r *Request) checkMachine(k *Known) *Decision {
	m := &k.Machine
	switch {
	case k.Machines == 0:
		return ignore(UnknownNode, "no LibvirtMachine has the node name %s", r.NodeName)
	case k.Machines > 1:
		return ignore(AmbiguousNode, "%d LibvirtMachines have the node name %s; delete all but one", k.Machines, r.NodeName)
	case m.Deleting:
		return ignore(MachineDeleting, "LibvirtMachine %s is being deleted", m.Key)
	case m.Paused:
		return wait(MachinePaused, "LibvirtMachine %s is paused", m.Key)
	case !m.Owned:
		return wait(OwnerMissing, "no Machine owns LibvirtMachine %s", m.Key)
	case !m.Started:
		return wait(MachineNotStarted, "CAPLV has not started LibvirtMachine %s yet", m.Key)
	case !m.Running:
		return wait(DomainNotRunning, "the domain of LibvirtMachine %s does not run, or cannot be seen; see its condition DomainRunning", m.Key)
	}
	return nil
}

// checkJoining lets only a machine that is not in the cluster join it.
func (r *Request) checkJoining(k *Known) *Decision {
	switch {
	case k.Machine.NodeLinked:
		return ignore(NodeAlreadyJoined, "the Machine of LibvirtMachine %s has a Node already", k.Machine.Key)
	case k.Node == nil:
		return nil
	case k.Node.ProviderID != "" && k.Node.ProviderID == k.Machine.ProviderID:
		return ignore(NodeAlreadyJoined, "Node %s of LibvirtMachine %s exists already", r.NodeName, k.Machine.Key)
	}
	return wait(StaleNode, "a Node %s with provider ID %q exists, and LibvirtMachine %s has %q; the machine can join when that Node is gone",
		r.NodeName, k.Node.ProviderID, k.Machine.Key, k.Machine.ProviderID)
}

// checkTime refuses what cannot have come from this incarnation of the machine, and what comes too late to be its first boot.
func (r *Request) checkTime(k *Known) *Decision {
	begin, end := k.Machine.CreationStarted.Add(-clockSkew), k.Machine.RunningSince.Add(JoinWindow+clockSkew)
	switch {
	case r.Created.Before(k.Machine.Created):
		// Without any tolerance: the same names may be created again a second later.
		return ignore(OlderThanMachine, "the request was made at %s, before LibvirtMachine %s was created at %s: it is for an earlier machine of this name",
			r.Created.UTC().Format(time.RFC3339), k.Machine.Key, k.Machine.Created.UTC().Format(time.RFC3339))
	case r.Created.Before(begin):
		return ignore(OlderThanMachine, "the request was made at %s, before LibvirtMachine %s began to be created at %s",
			r.Created.UTC().Format(time.RFC3339), k.Machine.Key, k.Machine.CreationStarted.UTC().Format(time.RFC3339))
	case r.Created.After(end):
		return ignore(TooLate, "the request was made at %s, more than %s after the domain of LibvirtMachine %s was seen to start; create the machine again",
			r.Created.UTC().Format(time.RFC3339), JoinWindow, k.Machine.Key)
	}
	return nil
}

// checkNewer leaves out what the kubelet has given up: it makes a new key for each request, and forgets the old one.
func (r *Request) checkNewer(k *Known) *Decision {
	// An approval that was recorded binds, since no other one can follow.
	recorded := k.Machine.Approval != nil && k.Machine.Approval.RequestUID == r.UID
	if k.NewerRequest == "" || recorded {
		return nil
	}
	return ignore(Superseded, "%s is a newer request for the same node", k.NewerRequest)
}

// checkApproval allows one key for one incarnation of a machine. Bootstrap credentials are shared by all machines, so a second key
// may well be somebody else's.
func (r *Request) checkApproval(k *Known) *Decision {
	a := k.Machine.Approval
	if a == nil || a.Failed || a.RequestUID == r.UID || a.PublicKeySHA256 == r.PublicKeySHA256 {
		return nil
	}
	return ignore(ApprovedBefore, "the client certificate of LibvirtMachine %s was approved with request %s; "+
		"create the machine again, or remove status.nodeClientCertificate if you are sure that nobody holds that certificate", k.Machine.Key, a.RequestName)
}

// checkServingNode requires that the Node is that of the machine, and not of a namesake.
func (r *Request) checkServingNode(k *Known) *Decision {
	switch {
	case k.Node == nil:
		return wait(NodeNotJoined, "Node %s does not exist yet", r.NodeName)
	case k.Node.ProviderID == "" || k.Machine.ProviderID == "":
		return wait(ProviderIDMissing, "Node %s and LibvirtMachine %s do not have the same provider ID yet", r.NodeName, k.Machine.Key)
	case k.Node.ProviderID != k.Machine.ProviderID:
		return ignore(ForeignProviderID, "Node %s has provider ID %q, and LibvirtMachine %s has %q", r.NodeName, k.Node.ProviderID, k.Machine.Key, k.Machine.ProviderID)
	}
	return nil
}

func (r *Request) checkNames(k *Known) *Decision {
	for _, name := range r.DNSNames {
		if slices.ContainsFunc(k.Identities.Names, func(identity string) bool { return sameName(identity, name) }) {
			return ignore(ClusterIdentity, "the API server is reached as %s", name)
		}
		if name != r.NodeName {
			return ignore(ForeignName, "the DNS name %q is not the name of Node %s", name, r.NodeName)
		}
	}
	return nil
}

// checkIdentities refuses the API server's addresses, also where a machine or an egress IP declares them.
func (r *Request) checkIdentities(k *Known) *Decision {
	for _, address := range r.Addresses {
		if slices.Contains(k.Identities.Addresses, address) {
			return ignore(ClusterIdentity, "the API server is reached at %s", address)
		}
	}
	if k.Identities.Unknown != "" && len(r.Addresses) > 0 {
		return wait(ClusterIdentityUnknown, "the API server's own addresses could not be found out: %s", k.Identities.Unknown)
	}
	return nil
}

func (r *Request) checkAddresses(k *Known) *Decision {
	var waiting *Decision
	for _, address := range r.Addresses {
		if slices.Contains(k.EgressIPs.Assigned, address) {
			continue
		}
		if !slices.Contains(k.Machine.Addresses, address) || !ordinary(address) {
			if !k.EgressIPs.Served || !ordinary(address) {
				return ignore(ForeignAddress, "spec.network.addresses of LibvirtMachine %s does not have %s", k.Machine.Key, address)
			}
			waiting = wait(EgressIPNotAssigned, "spec.network.addresses of LibvirtMachine %s does not have %s, and no EgressIP assigns it to Node %s",
				k.Machine.Key, address, r.NodeName)
			continue
		}
		if other, taken := k.TakenAddresses[address]; taken {
			return ignore(AddressInUse, "%s is also an address of Node %s", address, other)
		}
	}
	return waiting
}

func checkLoad(k *Known) *Decision {
	if k.Load.Pending <= k.Load.Limit {
		return nil
	}
	return wait(TooManyPending, "%d requests of kubelets are pending, and nothing is approved above %d; find out where they come from, and delete them",
		k.Load.Pending, k.Load.Limit)
}

// Undeclared returns whether the request has an address that the machine's spec does not have.
func (r *Request) Undeclared(m *Machine) bool {
	return slices.ContainsFunc(r.Addresses, func(a netip.Addr) bool { return !slices.Contains(m.Addresses, a) })
}

// ordinary returns whether an address can be that of one machine.
func ordinary(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast()
}

// sameName compares DNS names: without case, and with or without the final dot.
func sameName(a, b string) bool {
	return strings.EqualFold(strings.TrimSuffix(a, "."), strings.TrimSuffix(b, "."))
}
