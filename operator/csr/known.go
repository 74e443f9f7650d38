// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"net/netip"
	"time"
)

// Known is what is known when a request is decided. Only Machine.Addresses comes from a user, who may declare anything; Nodes are
// described by themselves, so that what they say can stop an approval and never cause one.
type Known struct {
	// Machines is the number of LibvirtMachines whose status.nodeName is the request's; Machine is meant for exactly one.
	Machines int
	Machine  Machine
	// Node is the Node of that name, nil when there is none.
	Node *Node
	// NewerRequest is the name of a pending request that is in order, for the same certificate, and newer.
	NewerRequest string
	// Load is how many requests are pending.
	Load Load
	// Identities are asked for serving certificates only.
	Identities Identities
	// EgressIPs are asked for serving certificates with an address that the machine does not have.
	EgressIPs EgressIPs
	// TakenAddresses are those of the request's addresses that Nodes of other names have, each with such a Node.
	TakenAddresses map[netip.Addr]string
}

// Machine is what the operator has recorded of a LibvirtMachine and its owner.
type Machine struct {
	// Key is NAMESPACE/NAME, for messages.
	Key string
	// Deleting, Paused: as said by the objects.
	Deleting, Paused bool
	// Started says that the finalizer is there, the identity is recorded and that of this object, and a domain ran.
	Started bool
	// Running says that the domain runs, and RunningSince since when that is so.
	Running      bool
	RunningSince time.Time
	// Created is when the object was created, by the API server's clock, as that of a request is.
	Created time.Time
	// CreationStarted is when the identity was recorded, by the operator's clock.
	CreationStarted time.Time
	// ProviderID is spec.providerID.
	ProviderID string
	// Addresses are those of spec.network.
	Addresses []netip.Addr
	// Owned says that a Machine owns it, and NodeLinked that the Machine has a nodeRef.
	Owned, NodeLinked bool
	// Approval is the client certificate that was approved for it, nil before.
	Approval *Approval
}

// Approval is a client certificate that was approved.
type Approval struct {
	RequestName, RequestUID, PublicKeySHA256 string
	// Failed says that the signer has refused it for good, so that there is no certificate and there will not be.
	Failed bool
}

// Node is what the API server has of a Node.
type Node struct {
	ProviderID string
}

// Identities are the names and addresses of the API server.
type Identities struct {
	Names     []string
	Addresses []netip.Addr
	// Unknown says why some could not be found out; empty when all are here.
	Unknown string
}

// EgressIPs are addresses that the cluster's network has given to a Node in addition.
type EgressIPs struct {
	// Served says that the cluster knows them.
	Served bool
	// Assigned are those of the request's Node.
	Assigned []netip.Addr
}

const (
	// PendingAge is how long a request counts as load. A kubelet waits 15 minutes and makes a new one.
	PendingAge = time.Hour
	// PendingMargin is how many requests may be pending beyond one for each machine.
	PendingMargin = 100

	clockSkew = 10 * time.Second
)

// Load is how many requests are pending, and how many may be.
type Load struct{ Pending, Limit int }

// NewLoad counts the pending requests that are young enough, by their creation.
func NewLoad(created []time.Time, machines, nodes int, now time.Time) Load {
	load := Load{Limit: max(machines, nodes) + PendingMargin}
	for _, at := range created {
		if now.Sub(at) < PendingAge+clockSkew {
			load.Pending++
		}
	}
	return load
}
