// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/controller/index"
	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/session"
	"github.com/caplv/caplv/operator/setup"
	"github.com/caplv/caplv/operator/virsh"
)

const (
	fingerprint = "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	systemUUID  = "7b3c0c56-9a1c-4b52-8c0e-2d6a1b6f0a11"
)

var key = client.ObjectKey{Namespace: "default", Name: "h"}

// connector gives out one host, or an error, and counts connections.
type connector struct {
	err       error
	session   error
	facts     setup.Facts
	connects  int
	forgotten []client.ObjectKey
	// during is called while the host is being connected to.
	during func()
}

func (c *connector) Connect(context.Context, *infrav1.LibvirtHost) (hosts.Host, error) {
	c.connects++
	if c.during != nil {
		c.during()
	}
	return &usableHost{session: c.session, facts: c.facts}, c.err
}
func (c *connector) Forget(key client.ObjectKey) { c.forgotten = append(c.forgotten, key) }

// usableHost is a host in order.
type usableHost struct {
	hosts.Host
	session error
	facts   setup.Facts
}

func (*usableHost) HostKeyFingerprint() string { return fingerprint }
func (h *usableHost) ProbeHelper(context.Context) (setup.Facts, error) {
	return h.facts, nil
}
func (h *usableHost) ProbeSession(context.Context, string) error {
	return h.session
}
func (*usableHost) Probe(context.Context, string) (virsh.Hypervisor, error) {
	return virsh.Hypervisor{LibvirtVersion: "9.0.0", HypervisorVersion: "7.2.22", CPUs: 8, MemoryMiB: 16384, SystemUUID: systemUUID}, nil
}

type bench struct {
	*WithT
	t         *testing.T
	r         *Reconciler
	connector *connector
	recorder  *events.FakeRecorder
	now       time.Time
}

func newBench(t *testing.T, change func(*infrav1.LibvirtHost)) *bench {
	t.Helper()
	b := &bench{WithT: NewWithT(t), t: t, connector: &connector{}, recorder: events.NewFakeRecorder(1000), now: time.Now()}
	scheme := runtime.NewScheme()
	b.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
	b.Expect(clusterv1.AddToScheme(scheme)).To(Succeed())
	b.Expect(corev1.AddToScheme(scheme)).To(Succeed())
	lh := &infrav1.LibvirtHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Generation: 1, Finalizers: []string{infrav1.HostFinalizer}},
		Spec:       infrav1.LibvirtHostSpec{URI: "qemu+ssh://a@b/system", VirtType: infrav1.VirtTypeKVM},
	}
	if change != nil {
		change(lh)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(lh).WithStatusSubresource(lh).
		WithIndex(&infrav1.LibvirtMachine{}, index.MachineByHost, index.HostOfMachine).
		WithIndex(&infrav1.LibvirtHost{}, index.HostBySystemUUID, index.SystemUUIDOfHost).Build()
	b.r = &Reconciler{Client: c, APIReader: c, Hosts: b.connector, Recorder: b.recorder, ProbeTimeout: time.Minute, now: func() time.Time { return b.now }}
	return b
}

func (b *bench) reconcile() (*infrav1.LibvirtHost, ctrl.Result) {
	b.t.Helper()
	result, err := b.r.Reconcile(b.t.Context(), ctrl.Request{NamespacedName: key})
	b.Expect(err).NotTo(HaveOccurred())
	lh := &infrav1.LibvirtHost{}
	b.Expect(b.r.Client.Get(b.t.Context(), key, lh)).To(Succeed())
	return lh, result
}

func (b *bench) addMachine() {
	b.Expect(b.r.Client.Create(b.t.Context(), &infrav1.LibvirtMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "m"},
		Spec:       infrav1.LibvirtMachineSpec{HostRef: infrav1.LibvirtHostReference{Name: key.Name}},
	})).To(Succeed())
}

func TestAHostIsProbedOnceAndThenOnlyWhileMachinesUseIt(t *testing.T) {
	b := newBench(t, nil)
	lh, result := b.reconcile()
	b.Expect(conditions.IsTrue(lh, infrav1.HostReadyCondition)).To(BeTrue())
	b.Expect(lh.Status.Ready).To(HaveValue(BeTrue()))
	b.Expect(lh.Status.Capacity).To(HaveValue(Equal(infrav1.HostCapacity{TotalVCPUs: 8, TotalMemoryMB: 16384, AvailableVCPUs: 6, AvailableMemoryMB: 12288})))
	b.Expect(lh.Status.LibvirtVersion).To(Equal("9.0.0"))
	b.Expect(result.RequeueAfter).To(BeZero())
	b.Expect(<-b.recorder.Events).To(ContainSubstring("Normal HostReady"))

	b.now = b.now.Add(time.Hour)
	_, result = b.reconcile()
	b.Expect(b.connector.connects).To(Equal(1), "an idle host sees no traffic")
	b.Expect(result.RequeueAfter).To(BeZero())

	b.addMachine()
	lh, result = b.reconcile()
	b.Expect(b.connector.connects).To(Equal(2))
	b.Expect(lh.Status.MachineCount).To(Equal(int32(1)))
	b.Expect(result.RequeueAfter).To(And(BeNumerically(">=", 300*time.Second), BeNumerically("<=", 360*time.Second)))

	b.now = b.now.Add(time.Minute)
	_, result = b.reconcile()
	b.Expect(b.connector.connects).To(Equal(2), "the last probe is still good")
	b.Expect(result.RequeueAfter).To(And(BeNumerically(">", 200*time.Second), BeNumerically("<=", 241*time.Second)))
}

func TestAHostThatFailsIsTriedAgainAndRecovers(t *testing.T) {
	b := newBench(t, nil)
	b.connector.err = hosts.NewConfigError(infrav1.SecretNotFoundReason, "no Secret")
	lh, result := b.reconcile()
	b.Expect(conditions.GetReason(lh, infrav1.HostReadyCondition)).To(Equal(infrav1.SecretNotFoundReason))
	b.Expect(conditions.GetMessage(lh, infrav1.HostReadyCondition)).To(Equal("no Secret"))
	b.Expect(lh.Status.Ready).To(HaveValue(BeFalse()))
	b.Expect(result.RequeueAfter).To(And(BeNumerically(">=", 2*time.Second), BeNumerically("<=", 3*time.Second)))
	b.Expect(<-b.recorder.Events).To(ContainSubstring("Warning SecretNotFound"))

	b.connector.err = errors.New("odd")
	b.now = b.now.Add(time.Hour)
	lh, result = b.reconcile()
	b.Expect(conditions.GetReason(lh, infrav1.HostReadyCondition)).To(Equal(infrav1.ProbeFailedReason))
	b.Expect(result.RequeueAfter).To(BeNumerically("<=", 6*time.Minute))

	b.connector.err = nil
	b.now = b.now.Add(time.Hour)
	lh, _ = b.reconcile()
	b.Expect(conditions.IsTrue(lh, infrav1.HostReadyCondition)).To(BeTrue())
}

func TestAHostThatIsNotSetUpForSessionModeSaysWhatIsMissing(t *testing.T) {
	b := newBench(t, nil)
	b.connector.session = &session.Error{Missing: []session.Piece{{Name: session.PieceLinger, Problem: "it is off", Remedy: "turn it on"}}}
	lh, _ := b.reconcile()
	b.Expect(conditions.GetReason(lh, infrav1.HostReadyCondition)).To(Equal(infrav1.SessionModeMisconfiguredReason))
	b.Expect(conditions.GetMessage(lh, infrav1.HostReadyCondition)).To(ContainSubstring("lingering: it is off; turn it on"))

	b.connector.session = nil
	b.now = b.now.Add(time.Hour)
	lh, _ = b.reconcile()
	b.Expect(conditions.IsTrue(lh, infrav1.HostReadyCondition)).To(BeTrue())
}

func TestTheHostKeyIsPinned(t *testing.T) {
	for _, row := range []struct {
		name       string
		change     func(*infrav1.LibvirtHost)
		require    bool
		wantReady  string
		wantPinned string
	}{
		{"the first key seen is recorded", nil, false, infrav1.HostReadyReason, infrav1.HostKeyRecordedReason},
		{"a key of the spec is used", func(lh *infrav1.LibvirtHost) { lh.Spec.HostKeyFingerprint = fingerprint }, true, infrav1.HostReadyReason, infrav1.HostKeyFromSpecReason},
		{"an operator may insist on one in the spec", nil, true, infrav1.HostKeyNotPinnedReason, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, row.change)
			b.r.RequireFingerprint = row.require
			lh, _ := b.reconcile()
			b.Expect(conditions.GetReason(lh, infrav1.HostReadyCondition)).To(Equal(row.wantReady))
			b.Expect(conditions.GetReason(lh, infrav1.HostKeyPinnedCondition)).To(Equal(row.wantPinned))
			if row.wantPinned != "" {
				b.Expect(lh.Status.HostKeyFingerprint).To(Equal(fingerprint))
			} else {
				b.Expect(b.connector.connects).To(BeZero(), "the host must not be contacted")
			}
		})
	}
}

func TestCapacityIsNeverNegative(t *testing.T) {
	g := NewWithT(t)
	c := capacity(virsh.Hypervisor{CPUs: 1, MemoryMiB: 1024}, infrav1.ReservedResources{})
	g.Expect(*c).To(Equal(infrav1.HostCapacity{TotalVCPUs: 1, TotalMemoryMB: 1024}))
	c = capacity(virsh.Hypervisor{CPUs: 1, MemoryMiB: 1024}, infrav1.ReservedResources{VCPUs: ptr.To[int32](0), MemoryMB: ptr.To[int32](0)})
	g.Expect(c.AvailableVCPUs).To(Equal(int32(1)))
	g.Expect(c.AvailableMemoryMB).To(Equal(int32(1024)))
}

func TestWhatWasFoundForADeletedObjectIsNotWrittenToItsSuccessor(t *testing.T) {
	b := newBench(t, func(lh *infrav1.LibvirtHost) { lh.UID = "first" })
	b.connector.during = func() {
		b.Expect(b.r.Client.Patch(t.Context(), &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}},
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		b.Expect(b.r.Client.Delete(t.Context(), &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})).To(Succeed())
		b.Expect(b.r.Client.Create(t.Context(), &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "second"}})).To(Succeed())
	}
	lh, _ := b.reconcile()
	b.Expect(string(lh.UID)).To(Equal("second"))
	b.Expect(lh.Status.Conditions).To(BeEmpty())
	b.Expect(lh.Status.HostKeyFingerprint).To(BeEmpty())
}

func TestAPausedHostIsLeftAlone(t *testing.T) {
	b := newBench(t, func(lh *infrav1.LibvirtHost) { lh.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
	lh, _ := b.reconcile()
	b.Expect(b.connector.connects).To(BeZero())
	b.Expect(conditions.IsTrue(lh, clusterv1.PausedCondition)).To(BeTrue())
}
