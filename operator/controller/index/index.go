// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package index holds the field indexes that several reconcilers list by.
package index

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

const (
	// MachineByHost lists LibvirtMachines by the name of the LibvirtHost that they refer to.
	MachineByHost = "spec.hostRef.name"
	// MachineByNodeName lists LibvirtMachines by the name of their Node.
	MachineByNodeName = "status.nodeName"
	// HostBySystemUUID lists LibvirtHosts by the UUID of the host's board.
	HostBySystemUUID = "status.systemUUID"
	// NodeByProviderID lists Nodes by their provider ID.
	NodeByProviderID = "spec.providerID"
)

// Add registers all indexes.
func Add(ctx context.Context, mgr ctrl.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &infrav1.LibvirtMachine{}, MachineByHost, HostOfMachine); err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &infrav1.LibvirtMachine{}, MachineByNodeName, NodeNameOfMachine); err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Node{}, NodeByProviderID, ProviderIDOfNode); err != nil {
		return err
	}
	return mgr.GetFieldIndexer().IndexField(ctx, &infrav1.LibvirtHost{}, HostBySystemUUID, SystemUUIDOfHost)
}

// HostOfMachine is the index function of MachineByHost.
func HostOfMachine(o client.Object) []string {
	m, ok := o.(*infrav1.LibvirtMachine)
	if !ok {
		return nil
	}
	return []string{m.Spec.HostRef.Name}
}

// NodeNameOfMachine is the index function of MachineByNodeName. Only the operator writes the field, and no two machines get the same
// name.
func NodeNameOfMachine(o client.Object) []string {
	m, ok := o.(*infrav1.LibvirtMachine)
	if !ok || m.Status.NodeName == "" {
		return nil
	}
	return []string{m.Status.NodeName}
}

// SystemUUIDOfHost is the index function of HostBySystemUUID.
func SystemUUIDOfHost(o client.Object) []string {
	h, ok := o.(*infrav1.LibvirtHost)
	if !ok || h.Status.SystemUUID == "" {
		return nil
	}
	return []string{h.Status.SystemUUID}
}

// ProviderIDOfNode is the index function of NodeByProviderID.
func ProviderIDOfNode(o client.Object) []string {
	n, ok := o.(*corev1.Node)
	if !ok || n.Spec.ProviderID == "" {
		return nil
	}
	return []string{n.Spec.ProviderID}
}
