// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"context"
	"net/netip"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/controller/index"
	"github.com/caplv/caplv/operator/csr"
	"github.com/caplv/caplv/operator/domain"
)

// learn finds out what a decision needs. The machine is nil unless there is exactly one of the request's node name.
func (r *Reconciler) learn(ctx context.Context, request *csr.Request, load csr.Load) (*csr.Known, *infrav1.LibvirtMachine, error) {
	machines := &infrav1.LibvirtMachineList{}
	if err := r.Client.List(ctx, machines, client.MatchingFields{index.MachineByNodeName: request.NodeName}); err != nil {
		return nil, nil, err
	}
	known := &csr.Known{Machines: len(machines.Items), Load: load}
	if known.Machines != 1 {
		return known, nil, nil
	}
	lm := &machines.Items[0]
	if r.WatchFilterValue != "" && lm.Labels[clusterv1.WatchLabel] != r.WatchFilterValue {
		// It is another operator's.
		known.Machines = 0
		return known, nil, nil
	}
	cluster, err := r.learnMachine(ctx, r.Client, known, lm)
	if err != nil {
		return nil, nil, err
	}
	if !request.Serving {
		known.NewerRequest, err = r.newerThan(ctx, request)
		return known, lm, err
	}
	if known.Identities, err = r.identities(ctx, cluster); err != nil {
		return nil, nil, err
	}
	if request.Undeclared(&known.Machine) {
		if known.EgressIPs, err = r.egressIPs(ctx, request.NodeName); err != nil {
			return nil, nil, err
		}
	}
	known.TakenAddresses, err = r.takenAddresses(ctx, request)
	return known, lm, err
}

// learnMachine describes a machine with its owner and its Node.
func (r *Reconciler) learnMachine(ctx context.Context, reader client.Reader, known *csr.Known, lm *infrav1.LibvirtMachine) (*clusterv1.Cluster, error) {
	owner, cluster, err := owners(ctx, reader, lm)
	if err != nil {
		return nil, err
	}
	running := conditions.Get(lm, infrav1.DomainRunningCondition)
	m := csr.Machine{
		Key:             client.ObjectKeyFromObject(lm).String(),
		Deleting:        !lm.DeletionTimestamp.IsZero() || owner != nil && !owner.DeletionTimestamp.IsZero(),
		Paused:          annotations.HasPaused(lm) || cluster != nil && annotations.IsPaused(cluster, lm),
		Started:         started(lm),
		Running:         conditions.IsTrue(lm, infrav1.DomainRunningCondition),
		Created:         lm.CreationTimestamp.Time,
		CreationStarted: ptr.Deref(lm.Status.CreationStartedAt, lm.CreationTimestamp).Time,
		ProviderID:      lm.Spec.ProviderID,
		Owned:           owner != nil && cluster != nil,
		NodeLinked:      owner != nil && owner.Status.NodeRef.IsDefined(),
	}
	if running != nil {
		m.RunningSince = running.LastTransitionTime.Time
	}
	for _, a := range lm.Spec.Network.Addresses {
		if prefix, err := netip.ParsePrefix(string(a)); err == nil {
			m.Addresses = append(m.Addresses, prefix.Addr().Unmap())
		}
	}
	if m.Approval, err = r.approvalOf(ctx, lm); err != nil {
		return nil, err
	}
	known.Machine = m
	known.Node = nil
	node := &corev1.Node{}
	switch err := reader.Get(ctx, client.ObjectKey{Name: lm.Status.NodeName}, node); {
	case err == nil:
		known.Node = &csr.Node{ProviderID: node.Spec.ProviderID}
	case !apierrors.IsNotFound(err):
		return nil, err
	}
	return cluster, nil
}

// started returns whether the operator has started a domain for exactly this object.
func started(lm *infrav1.LibvirtMachine) bool {
	return controllerutil.ContainsFinalizer(lm, infrav1.MachineFinalizer) && lm.Status.DomainUUID == domain.UUID(string(lm.UID)) &&
		ptr.Deref(lm.Status.Initialization.Provisioned, false)
}

// owners returns the Machine that owns a LibvirtMachine and refers to it, and its Cluster; each is nil when it is not there.
func owners(ctx context.Context, reader client.Reader, lm *infrav1.LibvirtMachine) (*clusterv1.Machine, *clusterv1.Cluster, error) {
	at := slices.IndexFunc(lm.OwnerReferences, func(ref metav1.OwnerReference) bool {
		gv, err := schema.ParseGroupVersion(ref.APIVersion)
		return err == nil && gv.Group == clusterv1.GroupVersion.Group && ref.Kind == "Machine"
	})
	if at < 0 {
		return nil, nil, nil
	}
	owner := &clusterv1.Machine{}
	if err := reader.Get(ctx, client.ObjectKey{Namespace: lm.Namespace, Name: lm.OwnerReferences[at].Name}, owner); err != nil {
		return nil, nil, client.IgnoreNotFound(err)
	}
	// Whoever creates a LibvirtMachine can write any owner into it.
	ref := owner.Spec.InfrastructureRef
	if owner.UID != lm.OwnerReferences[at].UID || ref.APIGroup != infrav1.GroupVersion.Group || ref.Kind != "LibvirtMachine" || ref.Name != lm.Name {
		return nil, nil, nil
	}
	cluster := &clusterv1.Cluster{}
	if err := reader.Get(ctx, client.ObjectKey{Namespace: owner.Namespace, Name: owner.Spec.ClusterName}, cluster); err != nil {
		return owner, nil, client.IgnoreNotFound(err)
	}
	return owner, cluster, nil
}

// approvalOf is what is recorded of a machine's client certificate.
func (r *Reconciler) approvalOf(ctx context.Context, lm *infrav1.LibvirtMachine) (*csr.Approval, error) {
	recorded := lm.Status.NodeClientCertificate
	if recorded == nil {
		return nil, nil
	}
	approval := &csr.Approval{RequestName: recorded.RequestName, RequestUID: recorded.RequestUID, PublicKeySHA256: recorded.PublicKeySHA256}
	request := &certificatesv1.CertificateSigningRequest{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: recorded.RequestName}, request); err != nil {
		return approval, client.IgnoreNotFound(err)
	}
	approval.Failed = string(request.UID) == recorded.RequestUID && csr.Failed(request)
	return approval, nil
}

// takenAddresses are the addresses of a request that Nodes of other names have.
func (r *Reconciler) takenAddresses(ctx context.Context, request *csr.Request) (map[netip.Addr]string, error) {
	taken := map[netip.Addr]string{}
	for _, address := range request.Addresses {
		nodes := &corev1.NodeList{}
		if err := r.Client.List(ctx, nodes, client.MatchingFields{nodeByAddress: address.String()}, client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
		for i := range nodes.Items {
			if nodes.Items[i].Name != request.NodeName {
				taken[address] = nodes.Items[i].Name
			}
		}
	}
	return taken, nil
}
