// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

var key = client.ObjectKey{Namespace: "default", Name: "prod"}

// bench is a LibvirtCluster with its owner in a fake API server.
type bench struct {
	*WithT
	t        *testing.T
	r        *Reconciler
	recorder *events.FakeRecorder
}

func newBench(t *testing.T, endpoint clusterv1.APIEndpoint, change func(*clusterv1.Cluster, *infrav1.LibvirtCluster)) *bench {
	t.Helper()
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(clusterv1.AddToScheme(scheme)).To(Succeed())
	g.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "u"}}
	lc := &infrav1.LibvirtCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: key.Name, UID: "u",
		}}},
		Spec: infrav1.LibvirtClusterSpec{ControlPlaneEndpoint: endpoint},
	}
	if change != nil {
		change(cluster, lc)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, lc).WithStatusSubresource(lc).Build()
	recorder := events.NewFakeRecorder(10)
	return &bench{WithT: g, t: t, recorder: recorder, r: &Reconciler{Client: c, Recorder: recorder, Dialer: &net.Dialer{}}}
}

func (b *bench) reconcile() (*infrav1.LibvirtCluster, ctrl.Result) {
	b.t.Helper()
	result, err := b.r.Reconcile(b.t.Context(), ctrl.Request{NamespacedName: key})
	b.Expect(err).NotTo(HaveOccurred())
	lc := &infrav1.LibvirtCluster{}
	b.Expect(b.r.Client.Get(b.t.Context(), key, lc)).To(Succeed())
	return lc, result
}

func port(g Gomega, l net.Listener) int32 {
	tcp, ok := l.Addr().(*net.TCPAddr)
	g.Expect(ok).To(BeTrue())
	return int32(tcp.Port)
}

func listen(g Gomega, address string) (net.Listener, clusterv1.APIEndpoint) {
	l, err := net.Listen("tcp", address)
	g.Expect(err).NotTo(HaveOccurred())
	return l, clusterv1.APIEndpoint{Host: "127.0.0.1", Port: port(g, l)}
}

func TestTheControlPlaneIsCheckedAndLostAndFound(t *testing.T) {
	g := NewWithT(t)
	l, endpoint := listen(g, "127.0.0.1:0")
	address := l.Addr().String()
	b := newBench(t, endpoint, nil)

	lc, result := b.reconcile()
	b.Expect(conditions.GetReason(lc, infrav1.ClusterReadyCondition)).To(Equal(infrav1.ControlPlaneReachableReason))
	b.Expect(lc.Status.Ready).To(HaveValue(BeTrue()))
	b.Expect(lc.Status.Initialization.Provisioned).To(HaveValue(BeTrue()))
	b.Expect(result.RequeueAfter).To(Equal(60 * time.Second))
	b.Expect(<-b.recorder.Events).To(ContainSubstring("Normal ControlPlaneReachable"))

	b.Expect(l.Close()).To(Succeed())
	lc, result = b.reconcile()
	b.Expect(conditions.GetReason(lc, infrav1.ClusterReadyCondition)).To(Equal(infrav1.ControlPlaneUnreachableReason))
	b.Expect(conditions.GetMessage(lc, infrav1.ClusterReadyCondition)).To(And(ContainSubstring(address), ContainSubstring("no new ones are made")))
	b.Expect(lc.Status.Ready).To(HaveValue(BeFalse()))
	b.Expect(lc.Status.Initialization.Provisioned).To(HaveValue(BeTrue()), "provisioned only ever becomes true")
	b.Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", 72*time.Second)))
	b.Expect(<-b.recorder.Events).To(ContainSubstring("Warning ControlPlaneUnreachable"))

	l, _ = listen(g, address)
	defer func() { _ = l.Close() }()
	lc, _ = b.reconcile()
	b.Expect(conditions.IsTrue(lc, infrav1.ClusterReadyCondition)).To(BeTrue())
}

func TestWaiting(t *testing.T) {
	g := NewWithT(t)
	l, endpoint := listen(g, "127.0.0.1:0")
	defer func() { _ = l.Close() }()
	for _, row := range []struct {
		name       string
		endpoint   clusterv1.APIEndpoint
		change     func(*clusterv1.Cluster, *infrav1.LibvirtCluster)
		wantReason string
		wantPaused bool
	}{
		{"without an endpoint anywhere it waits for one", clusterv1.APIEndpoint{}, nil, infrav1.WaitingForControlPlaneEndpointReason, false},
		{"the Cluster's endpoint serves as well", clusterv1.APIEndpoint{}, func(c *clusterv1.Cluster, _ *infrav1.LibvirtCluster) {
			c.Spec.ControlPlaneEndpoint = endpoint
		}, infrav1.ControlPlaneReachableReason, false},
		{"without an owner it does nothing", endpoint, func(_ *clusterv1.Cluster, lc *infrav1.LibvirtCluster) { lc.OwnerReferences = nil }, "", false},
		{"a paused Cluster pauses it", endpoint, func(c *clusterv1.Cluster, _ *infrav1.LibvirtCluster) { c.Spec.Paused = new(true) }, "", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, row.endpoint, row.change)
			lc, _ := b.reconcile()
			b.Expect(conditions.GetReason(lc, infrav1.ClusterReadyCondition)).To(Equal(row.wantReason))
			b.Expect(conditions.IsTrue(lc, clusterv1.PausedCondition)).To(Equal(row.wantPaused))
		})
	}
}
