// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/controller/index"
	nodes "github.com/caplv/caplv/operator/controller/node"
)

// nodesOf are the Nodes that have the machine's provider ID, and the one of its name that is about to get it.
func (r *Reconciler) nodesOf(ctx context.Context, lm *infrav1.LibvirtMachine) ([]corev1.Node, error) {
	identified := lm.DeepCopy()
	identified.Spec.ProviderID = providerID(lm)
	list := &corev1.NodeList{}
	if err := r.Client.List(ctx, list, client.MatchingFields{index.NodeByProviderID: identified.Spec.ProviderID}); err != nil {
		return nil, fmt.Errorf("listing the Nodes of the machine: %w", err)
	}
	if lm.Status.NodeName == "" {
		return list.Items, nil
	}
	// A deletion must not miss a Node that the cache does not know yet.
	node := &corev1.Node{}
	if err := r.APIReader.Get(ctx, client.ObjectKey{Name: lm.Status.NodeName}, node); err != nil {
		return list.Items, client.IgnoreNotFound(err)
	}
	listed := slices.ContainsFunc(list.Items, func(n corev1.Node) bool { return n.Name == node.Name })
	if !listed && nodes.Belongs(identified, node) {
		list.Items = append(list.Items, *node)
	}
	return list.Items, nil
}

// deleteNodes deletes the machine's Nodes. It returns why one cannot be deleted.
func (r *Reconciler) deleteNodes(ctx context.Context, s *scope) (*Blocker, error) {
	found, err := r.nodesOf(ctx, s.machine)
	if err != nil {
		return nil, err
	}
	for i := range found {
		if err := r.deleteNode(ctx, s, &found[i], "NodeDeleted", "Node %s is deleted, since its machine is gone"); err != nil {
			return &Blocker{infrav1.CleanupFailedReason, fmt.Sprintf("Node %s cannot be deleted: %v", found[i].Name, err)}, nil
		}
	}
	return nil, nil
}

// deleteNode deletes exactly this Node, and not another one that has got its name meanwhile.
func (r *Reconciler) deleteNode(ctx context.Context, s *scope, node *corev1.Node, event, note string) error {
	gone := false
	err := r.guarded(writeDeleteNode, func() error {
		err := r.Client.Delete(ctx, node, client.Preconditions{UID: &node.UID})
		gone = apierrors.IsNotFound(err) || apierrors.IsConflict(err)
		if gone {
			return nil
		}
		return err
	})
	if err == nil && !gone {
		r.Recorder.Eventf(s.machine, node, corev1.EventTypeNormal, event, "DeletingNode", note, node.Name)
	}
	return err
}

// phaseNodeName keeps the name of the machine's Node free for it. A Node of an earlier machine of the same name goes, also when it
// comes back while the machine runs: until then, the kubelet's certificate is not approved. One that may be anybody's is left alone,
// and holds up a machine that has yet to start.
func (r *Reconciler) phaseNodeName(ctx context.Context, s *scope) error {
	node := &corev1.Node{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: s.desired.Name}, node); err != nil {
		return client.IgnoreNotFound(err)
	}
	identified := s.machine.DeepCopy()
	identified.Spec.ProviderID = providerID(s.machine)
	// Before the identity is recorded, nothing of this machine can have joined.
	if s.machine.Status.DomainUUID != "" && nodes.Belongs(identified, node) {
		return nil
	}
	stale, err := r.stale(ctx, s.machine, node)
	if err != nil {
		return err
	}
	if stale {
		if err := r.deleteNode(ctx, s, node, "StaleNodeDeleted", "Node %s of an earlier machine of this name is deleted"); err != nil {
			return fmt.Errorf("deleting Node %s of an earlier machine: %w", node.Name, err)
		}
		return nil
	}
	if s.provisioned() {
		return nil // NodeJoined says so.
	}
	s.domainProblem = &Blocker{infrav1.NodeAlreadyExistsReason, fmt.Sprintf(
		"Node %s (provider ID %q) has the machine's name, and is not known to be of an earlier machine of this name; delete it if nobody needs it, and the machine starts",
		node.Name, node.Spec.ProviderID)}
	return errStop
}

// stale returns whether a Node of the machine's name is proven to be of an earlier machine of that name: by a provider ID of ours, or by
// the annotations that only the operator keeps. No machine that exists may have it.
func (r *Reconciler) stale(ctx context.Context, lm *infrav1.LibvirtMachine, node *corev1.Node) (bool, error) {
	id, ours := domainOf(node.Spec.ProviderID)
	_, labels := node.Annotations[infrav1.ManagedLabelsAnnotation]
	_, annotations := node.Annotations[infrav1.ManagedAnnotationsAnnotation]
	if !ours && (node.Spec.ProviderID != "" || !labels && !annotations) {
		return false, nil
	}
	machines := &infrav1.LibvirtMachineList{}
	if err := r.Client.List(ctx, machines); err != nil {
		return false, err
	}
	return !slices.ContainsFunc(machines.Items, func(m infrav1.LibvirtMachine) bool {
		return client.ObjectKeyFromObject(&m) != client.ObjectKeyFromObject(lm) && (ours && m.Status.DomainUUID == id || m.Status.NodeName == node.Name)
	}), nil
}

// domainOf is the UUID in a provider ID, libvirt://<host>/<UUID>, and whether it has the form of ours.
func domainOf(providerID string) (string, bool) {
	rest, ok := strings.CutPrefix(providerID, "libvirt://")
	host, id, found := strings.Cut(rest, "/")
	parsed, err := uuid.Parse(id)
	if !ok || !found || host == "" || err != nil || parsed.Version() != 5 || parsed.String() != id {
		return "", false
	}
	return id, true
}
