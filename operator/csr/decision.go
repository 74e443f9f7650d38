// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package csr decides whether a kubelet's request for a certificate is approved. It is pure: what it needs to know of machine, Node
// and cluster is handed to it, and nothing of that may come from the kubelet itself.
//
// It never denies, since a request that it does not know may be somebody else's to approve.
package csr

import "fmt"

// Outcome is what is done with a request.
type Outcome string

const (
	// Approve means that every rule is met.
	Approve Outcome = "approve"
	// Wait means that the request may be approved later, as it is: something is missing, or stands in its way.
	Wait Outcome = "wait"
	// Ignore means that the request will never be approved by CAPLV, or is not its business.
	Ignore Outcome = "ignore"
)

// Reason names the rule that has decided, in CamelCase.
type Reason string

// The reasons. Those of Ignore come first, in the order in which the rules are asked.
const (
	// OtherSigner is a request for neither of the two kinds of kubelet certificates.
	OtherSigner Reason = "OtherSigner"
	// AlreadyDecided is a request that is approved, denied, failed or signed.
	AlreadyDecided Reason = "AlreadyDecided"
	// Malformed is a request that is not one PEM block of the right type with a correctly signed PKCS #10 request.
	Malformed Reason = "Malformed"
	// ForeignRequester is a request by somebody who may not ask for this kind of certificate.
	ForeignRequester Reason = "ForeignRequester"
	// Renewal is a kubelet's own renewal of its client certificate, which kube-controller-manager approves.
	Renewal Reason = "Renewal"
	// WrongSubject is a subject that is not exactly the common name and organization of a node.
	WrongSubject Reason = "WrongSubject"
	// WrongUsages is a set of usages that is not one of the two exact ones.
	WrongUsages Reason = "WrongUsages"
	// WrongAlternativeNames is a client certificate with subject alternative names, or a serving certificate without any or with other
	// kinds than DNS names and IP addresses.
	WrongAlternativeNames Reason = "WrongAlternativeNames"
	// TooLongLived is a request for a certificate that lives longer than MaxLifetime.
	TooLongLived Reason = "TooLongLived"
	// UnknownNode is a node name that no LibvirtMachine has.
	UnknownNode Reason = "UnknownNode"
	// AmbiguousNode is a node name that several LibvirtMachines have.
	AmbiguousNode Reason = "AmbiguousNode"
	// MachineDeleting is a request for a machine that is being deleted.
	MachineDeleting Reason = "MachineDeleting"
	// NodeAlreadyJoined is a client certificate for a machine whose Node exists.
	NodeAlreadyJoined Reason = "NodeAlreadyJoined"
	// OlderThanMachine is a client certificate that was asked for before the machine began to be created.
	OlderThanMachine Reason = "OlderThanMachine"
	// TooLate is a client certificate that was asked for long after the domain's start.
	TooLate Reason = "TooLate"
	// Superseded is a request after which the kubelet has made a newer one.
	Superseded Reason = "Superseded"
	// ApprovedBefore is a second client certificate for one incarnation of a machine.
	ApprovedBefore Reason = "ApprovedBefore"
	// ForeignProviderID is a serving certificate for a Node that has another provider ID than the machine.
	ForeignProviderID Reason = "ForeignProviderID"
	// ForeignName is a DNS name that is not the node's.
	ForeignName Reason = "ForeignName"
	// ForeignAddress is an IP address that the machine's spec does not have.
	ForeignAddress Reason = "ForeignAddress"
	// ClusterIdentity is a name or an address at which the API server is reached.
	ClusterIdentity Reason = "ClusterIdentity"
	// AddressInUse is an address of the spec that another Node has.
	AddressInUse Reason = "AddressInUse"

	// MachinePaused waits for the end of a pause.
	MachinePaused Reason = "MachinePaused"
	// MachineNotStarted waits for the machine's finalizer and identity, which are there before its domain is.
	MachineNotStarted Reason = "MachineNotStarted"
	// DomainNotRunning waits until the machine's domain runs, or can be seen to.
	DomainNotRunning Reason = "DomainNotRunning"
	// OwnerMissing waits for the Machine that owns the LibvirtMachine.
	OwnerMissing Reason = "OwnerMissing"
	// StaleNode waits until a Node of that name, which is not this machine's, is gone.
	StaleNode Reason = "StaleNode"
	// NodeNotJoined waits for the Node.
	NodeNotJoined Reason = "NodeNotJoined"
	// ProviderIDMissing waits for the Node's provider ID.
	ProviderIDMissing Reason = "ProviderIDMissing"
	// EgressIPNotAssigned waits for an address that may become an egress IP of the Node.
	EgressIPNotAssigned Reason = "EgressIPNotAssigned"
	// ClusterIdentityUnknown waits until the addresses of the API server can be found out.
	ClusterIdentityUnknown Reason = "ClusterIdentityUnknown"
	// TooManyPending waits until fewer requests are pending.
	TooManyPending Reason = "TooManyPending"

	// Approved is the reason of Approve.
	Approved Reason = "Approved"
)

// Decision is what is done with a request, and why.
type Decision struct {
	Outcome Outcome
	Reason  Reason
	// Message is a sentence without full stop that names what was found and, where somebody has to act, the way out.
	Message string
}

func ignore(reason Reason, format string, args ...any) *Decision {
	return &Decision{Ignore, reason, fmt.Sprintf(format, args...)}
}

func wait(reason Reason, format string, args ...any) *Decision {
	return &Decision{Wait, reason, fmt.Sprintf(format, args...)}
}
