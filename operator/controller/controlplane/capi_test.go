// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/caplv/caplv/api/controlplane/v1alpha1"
)

// TestClusterAPILinksDrainsAndDeletesNodes is the life of a Machine with the real Cluster API core, and what core asks the API
// server for meanwhile.
func TestClusterAPILinksDrainsAndDeletesNodes(t *testing.T) {
	t.Parallel()
	b := newBench(t, controlplanev1.LibvirtExternalControlPlaneSpec{}, nil)
	start := time.Now()
	m, node := b.machine("worker")

	b.expectCondition(b.cp, controlplanev1.AvailableCondition, "True/APIServerReachable")
	// Conditions are written before the rest of a status.
	b.Eventually(func(g Gomega) {
		g.Expect(b.read(b.cp)).To(Succeed())
		g.Expect(b.cp.Status.Versions).To(ConsistOf(HaveField("Version", HavePrefix("v1."))))
		g.Expect(b.cp.Status.ExternalManagedControlPlane).To(HaveValue(BeTrue()))
	}, soon, 100*time.Millisecond).Should(Succeed())
	b.expectCondition(b.cluster, clusterv1.ClusterControlPlaneInitializedCondition, "True/Initialized")
	b.expectCondition(b.cluster, clusterv1.ClusterControlPlaneAvailableCondition, "True/APIServerReachable")
	b.expectCondition(b.cluster, clusterv1.ClusterRemoteConnectionProbeCondition, "True/ProbeSucceeded")
	b.Eventually(func(g Gomega) {
		g.Expect(b.read(m)).To(Succeed())
		g.Expect(m.Status.NodeRef.Name).To(Equal(node.Name))
		g.Expect(m.Status.Phase).To(Equal("Running"))
		g.Expect(conditions.IsTrue(m, clusterv1.MachineNodeReadyCondition)).To(BeTrue())
		g.Expect(b.read(node)).To(Succeed())
		g.Expect(node.Annotations).To(HaveKeyWithValue(clusterv1.MachineAnnotation, m.Name))
	}, soon, 100*time.Millisecond).Should(Succeed())
	t.Logf("the Machine was Running %s after it was created", time.Since(start).Round(100*time.Millisecond))

	b.expectDrainAndDeletion(m, node)
	asked := b.audit()
	t.Logf("Cluster API asked for: %s", strings.Join(asked, ", "))
	b.Expect(asked).To(ContainElements("200 get /", "200 watch nodes", "200 patch nodes", "200 delete nodes", "200 list pods", "201 create pods/eviction"))
	for _, request := range asked {
		b.Expect(request).NotTo(HavePrefix("403"), "the token lacks a right")
	}
}

func (b *bench) expectDrainAndDeletion(m *clusterv1.Machine, node *corev1.Node) {
	b.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "p", OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "none", UID: "none", Controller: new(true),
		}}},
		Spec: corev1.PodSpec{NodeName: node.Name, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	b.create(pod)
	b.Expect(b.c.Delete(b.t.Context(), m)).To(Succeed())
	b.Eventually(func() (bool, error) { return !pod.DeletionTimestamp.IsZero(), b.read(pod) }, soon, 100*time.Millisecond).Should(BeTrue(), "it is evicted")
	b.Expect(b.read(node)).To(Succeed())
	b.Expect(node.Spec.Unschedulable).To(BeTrue())
	// What its kubelet would do.
	b.Expect(b.c.Delete(b.t.Context(), pod, client.GracePeriodSeconds(0))).To(Succeed())
	b.Eventually(func() bool { return apierrors.IsNotFound(b.read(m)) }, 2*soon, 100*time.Millisecond).Should(BeTrue())
	b.Expect(apierrors.IsNotFound(b.read(node))).To(BeTrue(), "Cluster API has deleted the Node")
}

// audit is what was asked for with the token: STATUS VERB WHAT, each once.
func (b *bench) audit() []string {
	b.t.Helper()
	f, err := os.Open(suite.audit)
	b.Expect(err).NotTo(HaveOccurred())
	defer f.Close()
	found := map[string]bool{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event struct {
			Verb, RequestURI string
			UserAgent        string
			ObjectRef        *struct{ Resource, Subresource string }
			ResponseStatus   struct{ Code json.Number }
		}
		b.Expect(json.Unmarshal(lines.Bytes(), &event)).To(Succeed())
		// The others are tests and the reconciler itself.
		if strings.HasPrefix(event.UserAgent, "kubectl") || strings.HasPrefix(event.UserAgent, "controlplane.test") {
			continue
		}
		what, _, _ := strings.Cut(event.RequestURI, "?")
		if event.ObjectRef != nil {
			what = event.ObjectRef.Resource
			if event.ObjectRef.Subresource != "" {
				what += "/" + event.ObjectRef.Subresource
			}
		}
		found[event.ResponseStatus.Code.String()+" "+event.Verb+" "+what] = true
	}
	b.Expect(lines.Err()).NotTo(HaveOccurred())
	var all []string
	for request := range found {
		all = append(all, request)
	}
	slices.Sort(all)
	return all
}

func TestMachineHealthChecksAct(t *testing.T) {
	t.Parallel()
	b := newBench(t, controlplanev1.LibvirtExternalControlPlaneSpec{}, nil)
	m, node := b.machine("sick")
	b.Eventually(func() (string, error) { return m.Status.NodeRef.Name, b.read(m) }, 2*soon, 100*time.Millisecond).Should(Equal(node.Name))
	b.setNodeReady(node, corev1.ConditionFalse)
	b.create(&clusterv1.MachineHealthCheck{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "check"},
		Spec: clusterv1.MachineHealthCheckSpec{
			ClusterName: "prod", Selector: metav1.LabelSelector{MatchLabels: map[string]string{"role": m.Name}},
			Checks: clusterv1.MachineHealthCheckChecks{UnhealthyNodeConditions: []clusterv1.UnhealthyNodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionFalse, TimeoutSeconds: new(int32(1))},
			}},
		},
	})
	b.expectCondition(m, clusterv1.MachineHealthCheckSucceededCondition, "False/UnhealthyNode")
	b.expectCondition(m, clusterv1.MachineOwnerRemediatedCondition, "False/WaitingForRemediation")
}

// TestDeletion: there is no garbage collection here, so the owner of the Secret is what shows that it goes.
func TestDeletion(t *testing.T) {
	t.Parallel()
	b := newBench(t, controlplanev1.LibvirtExternalControlPlaneSpec{}, nil)
	b.expectCondition(b.cp, controlplanev1.AvailableCondition, "True/APIServerReachable")
	s, err := b.kubeconfig()
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(metav1.IsControlledBy(s, b.cp)).To(BeTrue())
	// Cluster API deletes what belongs to a Cluster once it has put its finalizer there.
	b.Eventually(func() ([]string, error) { return b.cluster.Finalizers, b.read(b.cluster) }, soon, 100*time.Millisecond).Should(ContainElement(clusterv1.ClusterFinalizer))
	b.Expect(b.c.Delete(t.Context(), b.cluster)).To(Succeed())
	b.Eventually(func() bool { return apierrors.IsNotFound(b.read(b.cluster)) }, soon, 100*time.Millisecond).Should(BeTrue())
	b.Eventually(func() bool { return apierrors.IsNotFound(b.read(b.cp)) }, soon, 100*time.Millisecond).Should(BeTrue())
}
