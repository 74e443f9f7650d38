// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package drain empties a Node the way Cluster API's core does, one pass at a time, and decides how far a deletion may go.
package drain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/noderefutil"
	"sigs.k8s.io/cluster-api/core/reconcilers/machine/drain"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// namesShown is how many Pods or volumes a message names.
const namesShown = 3

// Drainer drains Nodes.
type Drainer struct {
	// Client reads from the API server, not from a cache: a cache would hold every Pod of the cluster.
	Client client.Client
}

// Left is what a pass has left on a Node; its zero value is nothing.
type Left struct {
	// Pods counts the Pods that are still to go.
	Pods int
	// Message names the first of them, and says why they are there.
	Message string
	// Unknown says that the pass failed, and Message why.
	Unknown bool
}

// Pass cordons a Node and evicts its Pods, as far as their disruption budgets allow now. It waits for nothing but the API server, for
// about 10 s at most. Pods of DaemonSets and static Pods are left alone; MachineDrainRules and the label cluster.x-k8s.io/drain
// count as they do for Cluster API. owner and cluster are what MachineDrainRules select by. Of a Node whose kubelet does
// not report any more, Pods that are being deleted count as gone.
func (d *Drainer) Pass(ctx context.Context, node *corev1.Node, owner *clusterv1.Machine, cluster *clusterv1.Cluster) (Left, error) {
	helper := &drain.Helper{Client: d.Client, RemoteClient: d.Client, GracePeriodSeconds: -1}
	if Unreachable(node) {
		helper.GracePeriodSeconds, helper.SkipWaitForDeleteTimeoutSeconds = 1, 1
	}
	if err := helper.CordonNode(ctx, node.DeepCopy()); err != nil {
		return Left{}, err
	}
	pods, err := helper.GetPodsForEviction(ctx, cluster, owner, node.Name)
	if err != nil {
		return Left{}, err
	}
	toGo := len(pods.Pods())
	if toGo == 0 {
		return Left{}, nil
	}
	result := helper.EvictPods(ctx, pods)
	if result.DrainCompleted() {
		return Left{}, nil
	}
	return Left{Pods: toGo - len(result.PodsNotFound), Message: describe(result)}, nil
}

// describe puts upstream's message, a list under a heading, into one line.
func describe(result drain.EvictionResult) string {
	_, list, _ := strings.Cut(result.ConditionMessage(metav1.Time{}), "\n")
	lines := strings.Split(list, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSuffix(strings.TrimPrefix(line, "* "), ".")
	}
	return strings.Join(lines, "; ")
}

// Volumes describes the volumes that are attached to a Node; it is empty when there are none. Those of a Node whose kubelet does not
// report any more cannot be detached, and do not count.
func (d *Drainer) Volumes(ctx context.Context, node *corev1.Node) (string, error) {
	if Unreachable(node) {
		return "", nil
	}
	attachments := &storagev1.VolumeAttachmentList{}
	if err := d.Client.List(ctx, attachments); err != nil {
		return "", fmt.Errorf("listing VolumeAttachments: %w", err)
	}
	return describeVolumes(node, attachments.Items), nil
}

// describeVolumes counts a volume once that both the Node and a VolumeAttachment speak of, whose names for it differ.
func describeVolumes(node *corev1.Node, attachments []storagev1.VolumeAttachment) string {
	var names []string
	for i := range attachments {
		a := &attachments[i]
		if a.Spec.NodeName == node.Name && a.Status.Attached && a.Spec.Source.PersistentVolumeName != nil {
			names = append(names, "PersistentVolume "+*a.Spec.Source.PersistentVolumeName)
		}
	}
	count := max(len(names), len(node.Status.VolumesAttached))
	for _, v := range node.Status.VolumesAttached {
		if len(names) < count {
			names = append(names, string(v.Name))
		}
	}
	if count == 0 {
		return ""
	}
	slices.Sort(names)
	shown := strings.Join(names[:min(len(names), namesShown)], ", ")
	if count > namesShown {
		shown += fmt.Sprintf(" and %d more", count-namesShown)
	}
	return fmt.Sprintf("%d attached: %s", count, shown)
}

// Unreachable returns whether a Node's kubelet does not report any more.
func Unreachable(node *corev1.Node) bool { return noderefutil.IsNodeUnreachable(node) }
