// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/controller/index"
	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/job"
)

var key = client.ObjectKey{Namespace: "ns", Name: "m"}

// fakeConnector gives out one fake host, or an error.
type fakeConnector struct {
	host *fakeHost
	err  error
}

func (c *fakeConnector) Connect(context.Context, *infrav1.LibvirtHost) (hosts.Host, error) {
	return c.host, c.err
}
func (c *fakeConnector) Forget(client.ObjectKey) {}

// objects are what a machine needs to run; a test changes or removes some of them.
type objects struct {
	cluster  *clusterv1.Cluster
	lcluster *infrav1.LibvirtCluster
	machine  *clusterv1.Machine
	secret   *corev1.Secret
	lhost    *infrav1.LibvirtHost
	lmachine *infrav1.LibvirtMachine
}

func newObjects() *objects {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: key.Namespace, Name: name, UID: "uid-1"}
	}
	ready := []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Ready", LastTransitionTime: metav1.Now()}}
	o := &objects{
		cluster: &clusterv1.Cluster{ObjectMeta: meta("prod"), Spec: clusterv1.ClusterSpec{InfrastructureRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: infrav1.GroupVersion.Group, Kind: "LibvirtCluster", Name: "prod",
		}}},
		lcluster: &infrav1.LibvirtCluster{ObjectMeta: meta("prod"), Status: infrav1.LibvirtClusterStatus{Conditions: ready}},
		machine:  &clusterv1.Machine{ObjectMeta: meta("m"), Spec: clusterv1.MachineSpec{ClusterName: "prod", Bootstrap: clusterv1.Bootstrap{DataSecretName: new("boot")}}},
		secret:   &corev1.Secret{ObjectMeta: meta("boot"), Data: map[string][]byte{"value": []byte(`{"ignition":{"version":"3.2.0"}}`)}},
		lhost: &infrav1.LibvirtHost{ObjectMeta: meta("h"), Spec: infrav1.LibvirtHostSpec{
			URI: "qemu+ssh://a@b/system", HostKeyFingerprint: "SHA256:x", VirtType: infrav1.VirtTypeQEMU,
		}, Status: infrav1.LibvirtHostStatus{Conditions: ready, Capacity: &infrav1.HostCapacity{
			TotalVCPUs: 8, TotalMemoryMB: 16384, AvailableVCPUs: 6, AvailableMemoryMB: 12288,
		}}},
		lmachine: &infrav1.LibvirtMachine{ObjectMeta: meta("m"), Spec: infrav1.LibvirtMachineSpec{
			HostRef:         infrav1.LibvirtHostReference{Name: "h"},
			Domain:          infrav1.DomainSpec{Machine: "q35", Firmware: infrav1.FirmwareBIOS},
			RootDisk:        infrav1.RootDiskSpec{Size: resource.MustParse("10Mi"), StoragePool: "default", BaseImage: "base.qcow2", Bus: "virtio"},
			Network:         infrav1.NetworkSpec{Type: infrav1.NetworkTypeBridge, Name: "br0", Model: "virtio", Addresses: []infrav1.AddressCIDR{"192.0.2.5/24", "2001:db8::5/64"}},
			BootstrapFormat: infrav1.BootstrapFormatIgnition,
		}},
	}
	o.cluster.Status.Initialization.InfrastructureProvisioned = new(true)
	o.lmachine.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "m", UID: o.machine.UID}}
	o.lmachine.Finalizers = []string{infrav1.MachineFinalizer}
	return o
}

type bench struct {
	*WithT
	t         *testing.T
	r         *Reconciler
	connector *fakeConnector
	recorder  *events.FakeRecorder
}

func newBench(t *testing.T, change func(*objects)) *bench {
	t.Helper()
	b := &bench{WithT: NewWithT(t), t: t, connector: &fakeConnector{host: newFakeHost()}, recorder: events.NewFakeRecorder(20)}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{infrav1.AddToScheme, clusterv1.AddToScheme, corev1.AddToScheme} {
		b.Expect(add(scheme)).To(Succeed())
	}
	o := newObjects()
	if change != nil {
		change(o)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&infrav1.LibvirtMachine{}, &infrav1.LibvirtHost{}).
		WithIndex(&infrav1.LibvirtMachine{}, index.MachineByHost, index.HostOfMachine).
		WithIndex(&corev1.Node{}, index.NodeByProviderID, index.ProviderIDOfNode)
	c := builder.WithObjects(o.lmachine).Build()
	// A nil pointer of a test means that the object does not exist.
	create := func(exists bool, object client.Object) {
		if exists {
			b.Expect(c.Create(t.Context(), object)).To(Succeed())
		}
	}
	create(o.cluster != nil, o.cluster)
	create(o.lcluster != nil, o.lcluster)
	create(o.machine != nil, o.machine)
	create(o.secret != nil, o.secret)
	if o.lhost != nil {
		status := o.lhost.Status
		create(true, o.lhost)
		o.lhost.Status = status
		b.Expect(c.Status().Update(t.Context(), o.lhost)).To(Succeed())
	}
	b.r = &Reconciler{Client: c, APIReader: c, Hosts: b.connector, Jobs: job.New(t.Context()), Recorder: b.recorder, HostTimeout: time.Minute}
	return b
}

func (b *bench) reconcile() (*infrav1.LibvirtMachine, ctrl.Result) {
	b.t.Helper()
	result, err := b.r.Reconcile(b.t.Context(), ctrl.Request{NamespacedName: key})
	b.Expect(err).NotTo(HaveOccurred())
	lm := &infrav1.LibvirtMachine{}
	err = b.r.Client.Get(b.t.Context(), key, lm)
	if apierrors.IsNotFound(err) {
		return nil, result
	}
	b.Expect(err).NotTo(HaveOccurred())
	return lm, result
}

func (b *bench) delete() {
	b.Expect(b.r.Client.Delete(b.t.Context(), &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})).To(Succeed())
}

func TestAMachineComesToLifeAndGoes(t *testing.T) {
	b := newBench(t, nil)
	before := b.connector.host.inventory()
	lm, result := b.reconcile()
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.RunningReason))
	b.Expect(lm.Status.Ready).To(HaveValue(BeTrue()))
	b.Expect(lm.Status.Initialization.Provisioned).To(HaveValue(BeTrue()))
	b.Expect(lm.Status.VCPUs).To(Equal(int32(6)), "it is sized from the host's available capacity")
	b.Expect(lm.Status.MemoryMB).To(Equal(int32(12288)))
	b.Expect(lm.Spec.ProviderID).To(Equal("libvirt://h/" + lm.Status.DomainUUID))
	b.Expect(lm.Status.Addresses).To(Equal([]clusterv1.MachineAddress{
		{Type: clusterv1.MachineInternalIP, Address: "192.0.2.5"}, {Type: clusterv1.MachineInternalIP, Address: "2001:db8::5"},
		{Type: clusterv1.MachineHostName, Address: "ns-prod-m"}, {Type: clusterv1.MachineInternalDNS, Address: "ns-prod-m"},
	}))
	b.Expect(result.RequeueAfter).To(And(BeNumerically(">=", 60*time.Second), BeNumerically("<=", 72*time.Second)))
	b.Expect(<-b.recorder.Events).To(ContainSubstring("Normal Running"))

	// Everything that a deletion does not need is gone.
	for _, object := range []client.Object{
		&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "prod"}}, &infrav1.LibvirtCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "prod"}},
		&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}}, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "boot"}},
	} {
		b.Expect(b.r.Client.Delete(t.Context(), object)).To(Succeed())
	}
	b.delete()
	lm, _ = b.reconcile()
	b.Expect(lm).To(BeNil())
	b.Expect(b.connector.host.inventory()).To(Equal(before))
	b.Expect(<-b.recorder.Events).To(ContainSubstring("Normal CleanedUp"))
}

func TestTheIdentityIsRecordedBeforeTheFirstStep(t *testing.T) {
	b := newBench(t, nil)
	b.connector.host.failAt = 1 // The pool is looked at first.
	lm, result := b.reconcile()
	b.Expect(lm.Status.NodeName).To(Equal("ns-prod-m"))
	b.Expect(lm.Status.DomainUUID).NotTo(BeEmpty())
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.ProvisioningFailedReason))
	b.Expect(conditions.GetMessage(lm, infrav1.MachineReadyCondition)).To(ContainSubstring("DefineDomain"))
	b.Expect(result.RequeueAfter).To(BeNumerically(">", 0))
	b.Expect(<-b.recorder.Events).To(ContainSubstring("Warning ProvisioningFailed"))
	lm, _ = b.reconcile()
	b.Expect(conditions.IsTrue(lm, infrav1.MachineReadyCondition)).To(BeTrue())
}

func TestWhatAMachineWaitsForIsInItsCondition(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*objects)
		want   string
	}{
		{"no Machine owns it", func(o *objects) { o.lmachine.OwnerReferences = nil }, infrav1.WaitingForOwnerMachineReason},
		{"its Cluster does not exist", func(o *objects) { o.cluster = nil }, infrav1.WaitingForClusterInfrastructureReason},
		{"the Cluster is not provisioned", func(o *objects) { o.cluster.Status.Initialization.InfrastructureProvisioned = nil }, infrav1.WaitingForClusterInfrastructureReason},
		{"the control plane is lost", func(o *objects) {
			o.lcluster.Status.Conditions[0].Status, o.lcluster.Status.Conditions[0].Reason = metav1.ConditionFalse, infrav1.ControlPlaneUnreachableReason
		}, infrav1.ControlPlaneUnreachableReason},
		{"the host does not exist", func(o *objects) { o.lhost = nil }, infrav1.HostNotFoundReason},
		{"the host was not probed", func(o *objects) { o.lhost.Status = infrav1.LibvirtHostStatus{} }, infrav1.HostNotReadyReason},
		{"the host is not ready", func(o *objects) {
			o.lhost.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: infrav1.UnauthorizedReason}}
		}, infrav1.UnauthorizedReason},
		{"the host is too small", func(o *objects) { o.lmachine.Spec.Domain.VCPUs = new(int32(7)) }, infrav1.InsufficientCapacityReason},
		{"the host has no memory to spare", func(o *objects) { o.lhost.Status.Capacity.AvailableMemoryMB = 100 }, infrav1.InsufficientCapacityReason},
		{"a session host has no networks", func(o *objects) {
			o.lhost.Spec.URI = "qemu+ssh://a@b/session"
			o.lmachine.Spec.Network.Type = infrav1.NetworkTypeNetwork
		}, infrav1.NetworkTypeUnsupportedReason},
		{"the Machine names no bootstrap data", func(o *objects) { o.machine.Spec.Bootstrap.DataSecretName = nil }, infrav1.WaitingForBootstrapDataReason},
		{"the bootstrap data does not exist", func(o *objects) { o.secret = nil }, infrav1.WaitingForBootstrapDataReason},
		{"the bootstrap data has no value", func(o *objects) { delete(o.secret.Data, "value") }, infrav1.InvalidBootstrapDataReason},
		{"the bootstrap data is cut in half", func(o *objects) { o.secret.Data["value"] = []byte(`{"ignition":{"ver`) }, infrav1.InvalidBootstrapDataReason},
		{"the bootstrap data has another format", func(o *objects) { o.secret.Data["format"] = []byte("cloud-config") }, infrav1.InvalidBootstrapDataReason},
		{"cloud-init is asked for and Ignition is given", func(o *objects) {
			o.lmachine.Spec.BootstrapFormat = infrav1.BootstrapFormatCloudInit
			o.secret.Data["format"] = []byte("ignition")
		}, infrav1.InvalidBootstrapDataReason},
		{"cloud-init is asked for and Ignition is in the Secret", func(o *objects) {
			o.lmachine.Spec.BootstrapFormat = infrav1.BootstrapFormatCloudInit
		}, infrav1.InvalidBootstrapDataReason},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, row.change)
			lm, _ := b.reconcile()
			b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(row.want), "%v", lm.Status.Conditions)
			b.Expect(conditions.GetMessage(lm, infrav1.MachineReadyCondition)).NotTo(BeEmpty())
			b.Expect(lm.Status.Ready).To(HaveValue(BeFalse()))
			b.Expect(b.connector.host.steps).To(BeEmpty(), "nothing may be created on the host")
			b.Expect(lm.Status.DomainUUID).To(BeEmpty())

			// What left no trace is deleted without the host.
			b.connector.err = hosts.NewConfigError(infrav1.UnreachableReason, "must not be asked")
			b.delete()
			lm, _ = b.reconcile()
			b.Expect(lm).To(BeNil())
		})
	}
}

func TestTheBootstrapFileFollowsFormatAndDelivery(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*objects)
		file   string
		check  func(Gomega, []byte)
	}{
		{"Ignition, plain", func(o *objects) { o.lmachine.Spec.IgnitionDelivery = infrav1.IgnitionDeliveryPlain }, "ignition.json",
			func(g Gomega, data []byte) { g.Expect(string(data)).To(ContainSubstring("/etc/hostname")) }},
		{"Ignition, compact", func(o *objects) {
			o.lmachine.Spec.IgnitionDelivery = infrav1.IgnitionDeliveryCompact
			o.secret.Data["value"] = fmt.Appendf(nil, `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/etc/x","contents":{"source":"data:,%s"}}]}}`, strings.Repeat("x", 4096))
		}, "ignition.json",
			func(g Gomega, data []byte) {
				g.Expect(string(data)).To(And(ContainSubstring(`"compression":"gzip"`), Not(ContainSubstring("/etc/hostname"))))
			}},
		{"cloud-init", func(o *objects) {
			o.lmachine.Spec.BootstrapFormat = infrav1.BootstrapFormatCloudInit
			o.secret.Data = map[string][]byte{"value": []byte("#cloud-config\n{}\n"), "format": []byte("cloud-config")}
		}, "seed.iso", func(g Gomega, data []byte) { g.Expect(string(data)).To(ContainSubstring("cidata")) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, row.change)
			lm, _ := b.reconcile()
			b.Expect(conditions.IsTrue(lm, infrav1.MachineReadyCondition)).To(BeTrue(), "%v", lm.Status.Conditions)
			staged := b.connector.host.directories["ns-prod-m"]
			b.Expect(staged.File).To(Equal(row.file))
			row.check(b, staged.Data)
			b.Expect(b.connector.host.domains["ns-prod-m"].xml).To(ContainSubstring("/run/caplv/ns-prod-m/" + row.file))
		})
	}
}

func TestAMachineWithoutOwnerGetsNoFinalizer(t *testing.T) {
	b := newBench(t, func(o *objects) { o.lmachine.OwnerReferences, o.lmachine.Finalizers = nil, nil })
	lm, _ := b.reconcile()
	b.Expect(lm.Finalizers).To(BeEmpty())
}

func TestTheFinalizerComesBeforeAnySideEffect(t *testing.T) {
	b := newBench(t, func(o *objects) { o.lmachine.Finalizers = nil })
	lm, _ := b.reconcile()
	b.Expect(lm.Finalizers).To(Equal([]string{infrav1.MachineFinalizer}))
	b.Expect(b.connector.host.steps).To(BeEmpty())
	lm, _ = b.reconcile()
	b.Expect(conditions.IsTrue(lm, infrav1.MachineReadyCondition)).To(BeTrue())
}

func TestAPausedMachineIsLeftAlone(t *testing.T) {
	b := newBench(t, func(o *objects) { o.cluster.Spec.Paused = new(true) })
	lm, _ := b.reconcile()
	b.Expect(conditions.IsTrue(lm, clusterv1.PausedCondition)).To(BeTrue())
	b.Expect(b.connector.host.steps).To(BeEmpty())
}

func TestAMachineThatDiesIsNotReadyAndNotStartedAgain(t *testing.T) {
	b := newBench(t, nil)
	b.reconcile()
	b.connector.host.domains["ns-prod-m"].running = false
	lm, _ := b.reconcile()
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.DomainNotRunningReason))
	b.Expect(lm.Status.Initialization.Provisioned).To(HaveValue(BeTrue()), "provisioned only ever becomes true")
	b.Expect(b.connector.host.domains["ns-prod-m"].running).To(BeFalse())
	b.connector.host.domains["ns-prod-m"].running = true
	lm, _ = b.reconcile()
	b.Expect(conditions.IsTrue(lm, infrav1.MachineReadyCondition)).To(BeTrue())
}

func TestAHostThatIsLostLeavesTheStateUnknown(t *testing.T) {
	b := newBench(t, nil)
	b.reconcile()
	b.connector.err = hosts.NewConfigError(infrav1.UnreachableReason, "no route")
	lm, _ := b.reconcile()
	b.Expect(conditions.IsUnknown(lm, infrav1.MachineReadyCondition)).To(BeTrue())
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.UnreachableReason))
	b.Expect(conditions.GetReason(lm, infrav1.DomainRunningCondition)).To(Equal(infrav1.StateUnknownReason))
	b.Expect(lm.Status.DomainState).To(Equal("running"), "what was last seen stays")
}

func TestAPoolWhoseDirectoryIsGoneDoesNotHoldUpADeletion(t *testing.T) {
	b := newBench(t, nil)
	b.reconcile()
	pool := b.connector.host.pools["default"]
	pool.active, pool.lost = false, true
	b.delete()
	lm, _ := b.reconcile()
	b.Expect(lm).To(BeNil())
	b.Expect(b.connector.host.domains).To(BeEmpty())
	b.Expect(b.connector.host.directories).To(BeEmpty())
}

func TestADeletionThatStallsKeepsItsFinalizerAndSaysWhy(t *testing.T) {
	for _, row := range []struct {
		name  string
		spoil func(*bench) (mend func())
		want  string
	}{
		{"the host cannot be reached", func(b *bench) func() {
			b.connector.err = hosts.NewConfigError(infrav1.UnreachableReason, "no route")
			return func() { b.connector.err = nil }
		}, infrav1.UnreachableReason},
		{"the LibvirtHost is gone", func(b *bench) func() {
			lh := &infrav1.LibvirtHost{}
			b.Expect(b.r.Client.Get(b.t.Context(), client.ObjectKey{Namespace: "ns", Name: "h"}, lh)).To(Succeed())
			b.Expect(b.r.Client.Delete(b.t.Context(), lh.DeepCopy())).To(Succeed())
			lh.ResourceVersion = ""
			return func() { b.Expect(b.r.Client.Create(b.t.Context(), lh)).To(Succeed()) }
		}, infrav1.HostNotFoundReason},
		{"the host refuses a step", func(b *bench) func() {
			b.connector.host.failAt = len(b.connector.host.steps)
			return func() {}
		}, infrav1.CleanupFailedReason},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, nil)
			before := b.connector.host.inventory()
			b.reconcile()
			mend := row.spoil(b)
			b.delete()
			lm, result := b.reconcile()
			b.Expect(lm.Finalizers).To(ContainElement(infrav1.MachineFinalizer))
			b.Expect(conditions.IsTrue(lm, infrav1.CleanupStalledCondition)).To(BeTrue())
			b.Expect(conditions.GetReason(lm, infrav1.CleanupStalledCondition)).To(Equal(row.want))
			b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.DeletingReason))
			b.Expect(result.RequeueAfter).To(BeNumerically(">", 0))
			mend()
			lm, _ = b.reconcile()
			b.Expect(lm).To(BeNil())
			b.Expect(b.connector.host.inventory()).To(Equal(before))
		})
	}
}
