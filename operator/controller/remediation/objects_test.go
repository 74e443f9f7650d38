// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package remediation_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/caplv/caplv/api/controlplane/v1alpha1"
	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// bench is a Cluster in a namespace of its own, with a machine that runs, its Node, and a MachineHealthCheck.
type bench struct {
	*WithT
	t         *testing.T
	c         client.Client
	namespace string
	cluster   *clusterv1.Cluster
	machine   *clusterv1.Machine
	lmachine  *infrav1.LibvirtMachine
	node      *corev1.Node
}

var numbers atomic.Int32

// newBench creates a Cluster in the same-cluster topology, and a machine of it that runs. change prepares the machine before.
func newBench(t *testing.T, change func(*clusterv1.Machine, *infrav1.LibvirtMachine)) *bench {
	t.Helper()
	b := &bench{WithT: NewWithT(t), t: t, c: cp.Client(), namespace: fmt.Sprintf("ns-%d", numbers.Add(1))}
	b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}})
	b.create(&controlplanev1.LibvirtExternalControlPlane{ObjectMeta: b.meta("prod")})
	endpoint := clusterv1.APIEndpoint{Host: "127.0.0.1", Port: 6443}
	lc := &infrav1.LibvirtCluster{ObjectMeta: b.meta("prod"), Spec: infrav1.LibvirtClusterSpec{ControlPlaneEndpoint: endpoint}}
	b.create(lc)
	lc.Status.Initialization.Provisioned = new(true)
	conditions.Set(lc, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Posted"})
	b.Expect(b.c.Status().Update(t.Context(), lc)).To(Succeed())
	b.cluster = &clusterv1.Cluster{ObjectMeta: b.meta("prod"), Spec: clusterv1.ClusterSpec{
		ControlPlaneEndpoint: endpoint,
		InfrastructureRef:    clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "LibvirtCluster", Name: "prod"},
		ControlPlaneRef:      clusterv1.ContractVersionedObjectReference{APIGroup: controlplanev1.GroupVersion.Group, Kind: "LibvirtExternalControlPlane", Name: "prod"},
	}}
	b.create(b.cluster)
	b.createMachine(change)
	return b
}

// meta labels an object as a worker of the Cluster.
func (b *bench) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: b.namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: "prod", "role": "worker"}}
}

func (b *bench) createMachine(change func(*clusterv1.Machine, *infrav1.LibvirtMachine)) {
	b.t.Helper()
	node := b.namespace + "-prod-m"
	b.lmachine = &infrav1.LibvirtMachine{ObjectMeta: b.meta("m"), Spec: infrav1.LibvirtMachineSpec{
		ProviderID: "libvirt://h/" + node,
		HostRef:    infrav1.LibvirtHostReference{Name: "h"},
		RootDisk:   infrav1.RootDiskSpec{Size: resource.MustParse("10Mi"), StoragePool: "default", BaseImage: "base.qcow2"},
		Network:    infrav1.NetworkSpec{Type: infrav1.NetworkTypeBridge, Name: "br0", Addresses: []infrav1.AddressCIDR{"192.0.2.5/24"}},
	}}
	b.lmachine.Status = infrav1.LibvirtMachineStatus{NodeName: node}
	b.lmachine.Status.Initialization.Provisioned = new(true)
	conditions.Set(b.lmachine, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Running"})
	b.machine = &clusterv1.Machine{ObjectMeta: b.meta("m"), Spec: clusterv1.MachineSpec{
		ClusterName: "prod", Bootstrap: clusterv1.Bootstrap{DataSecretName: new("bootstrap")},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "LibvirtMachine", Name: "m"},
	}}
	if change != nil {
		change(b.machine, b.lmachine)
	}
	status := b.lmachine.Status
	b.create(b.lmachine)
	b.lmachine.Status = status
	b.Expect(b.c.Status().Update(b.t.Context(), b.lmachine)).To(Succeed())
	b.create(b.machine)
	b.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: corev1.NodeSpec{ProviderID: "libvirt://h/" + node}}
	b.create(b.node)
	b.setNodeReady(corev1.ConditionTrue)
}

func (b *bench) setNodeReady(status corev1.ConditionStatus) {
	b.t.Helper()
	b.Expect(b.read(b.node)).To(Succeed())
	b.node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: status, Reason: "Posted", LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Minute)),
	}}
	b.Expect(b.c.Status().Update(b.t.Context(), b.node)).To(Succeed())
}

// check creates a MachineHealthCheck, with a template of this strategy if there is one.
func (b *bench) check(strategy *infrav1.RemediationStrategy) {
	b.t.Helper()
	mhc := &clusterv1.MachineHealthCheck{ObjectMeta: b.meta("workers"), Spec: clusterv1.MachineHealthCheckSpec{
		ClusterName: "prod", Selector: metav1.LabelSelector{MatchLabels: map[string]string{"role": "worker"}},
		Checks: clusterv1.MachineHealthCheckChecks{
			NodeStartupTimeoutSeconds: new(int32(600)),
			UnhealthyNodeConditions:   []clusterv1.UnhealthyNodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, TimeoutSeconds: new(int32(1))}},
		},
	}}
	if strategy != nil {
		b.create(&infrav1.LibvirtRemediationTemplate{ObjectMeta: b.meta("power-cycle"), Spec: infrav1.LibvirtRemediationTemplateSpec{
			Template: infrav1.LibvirtRemediationTemplateResource{Spec: infrav1.LibvirtRemediationSpec{Strategy: *strategy}},
		}})
		mhc.Spec.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{
			APIVersion: infrav1.GroupVersion.String(), Kind: "LibvirtRemediationTemplate", Name: "power-cycle",
		}
	}
	b.create(mhc)
}

// machineSet creates a MachineSet, which adopts the machine.
func (b *bench) machineSet() {
	b.t.Helper()
	template := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{}}}}}
	template.SetAPIVersion(infrav1.GroupVersion.String())
	template.SetKind("StandInMachineTemplate")
	template.SetNamespace(b.namespace)
	template.SetName("workers")
	b.create(template)
	labels := map[string]string{"role": "worker"}
	b.create(&clusterv1.MachineSet{ObjectMeta: b.meta("workers"), Spec: clusterv1.MachineSetSpec{
		ClusterName: "prod", Replicas: new(int32(1)), Selector: metav1.LabelSelector{MatchLabels: labels},
		Template: clusterv1.MachineTemplateSpec{ObjectMeta: clusterv1.ObjectMeta{Labels: labels}, Spec: clusterv1.MachineSpec{
			ClusterName: "prod", Bootstrap: clusterv1.Bootstrap{DataSecretName: new("bootstrap")},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "StandInMachineTemplate", Name: "workers"},
		}},
	}})
	b.Eventually(func() (bool, error) { return metav1.GetControllerOf(b.machine) != nil, b.read(b.machine) }, soon, poll).Should(BeTrue())
}

// remediation creates what a MachineHealthCheck would.
func (b *bench) remediation(strategy infrav1.RemediationStrategy, owner client.Object) *infrav1.LibvirtRemediation {
	b.t.Helper()
	rem := &infrav1.LibvirtRemediation{ObjectMeta: b.meta("m"), Spec: infrav1.LibvirtRemediationSpec{Strategy: strategy}}
	rem.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: owner.GetName(), UID: owner.GetUID()}}
	b.create(rem)
	return rem
}

// serve does what the machine's reconciler does with the request of this attempt.
func (b *bench) serve(rem *infrav1.LibvirtRemediation, attempt int) {
	b.t.Helper()
	want := fmt.Sprintf("%s/%s-%d", rem.Spec.Strategy.Type, rem.UID, attempt)
	b.Eventually(func() (string, error) {
		return b.lmachine.Annotations[infrav1.RestartRequestAnnotation], b.read(b.lmachine)
	}, soon, poll).Should(Equal(want))
	b.setRestartRequest(infrav1.RestartRequestStatus{Request: want, EndedTime: new(metav1.Now()), CompletionTime: new(metav1.Now())})
}

func (b *bench) setRestartRequest(status infrav1.RestartRequestStatus) {
	b.t.Helper()
	base := b.lmachine.DeepCopy()
	b.lmachine.Status.RestartRequest = &status
	b.Expect(b.c.Status().Patch(b.t.Context(), b.lmachine, client.MergeFrom(base))).To(Succeed())
}

func (b *bench) create(o client.Object) {
	b.t.Helper()
	b.Expect(b.c.Create(b.t.Context(), o)).To(Succeed())
}

// read reads an object as it is now.
func (b *bench) read(o client.Object) error {
	return b.c.Get(b.t.Context(), client.ObjectKeyFromObject(o), o)
}

// existing waits for the remediation that the MachineHealthCheck creates.
func (b *bench) existing() *infrav1.LibvirtRemediation {
	b.t.Helper()
	rem := &infrav1.LibvirtRemediation{ObjectMeta: b.meta("m")}
	b.Eventually(func() error { return b.read(rem) }, 2*soon, poll).Should(Succeed())
	return rem
}

// expectGone waits until an object does not exist. There is no garbage collection here.
func (b *bench) expectGone(o client.Object) {
	b.t.Helper()
	uid := o.GetUID()
	b.Eventually(func() bool { return apierrors.IsNotFound(b.read(o)) || o.GetUID() != uid }, soon, poll).Should(BeTrue())
}

// expectCondition waits for STATUS/REASON of a condition, empty for none, and returns its message.
func (b *bench) expectCondition(o interface {
	client.Object
	conditions.Getter
}, conditionType, want string,
) string {
	b.t.Helper()
	b.Eventually(func() (string, error) {
		if err := b.read(o); err != nil {
			return "", err
		}
		condition := conditions.Get(o, conditionType)
		if condition == nil {
			return "", nil
		}
		return string(condition.Status) + "/" + condition.Reason, nil
	}, soon, poll).Should(Equal(want), func() string { return conditionType + ": " + conditions.GetMessage(o, conditionType) })
	return conditions.GetMessage(o, conditionType)
}
