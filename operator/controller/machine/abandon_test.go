// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/domain"
	"github.com/caplv/caplv/operator/hosts"
)

const somebodysDomain = `<domain><name>somebodys</name><uuid>22222222-2222-2222-2222-222222222222</uuid></domain>`

func abandoned(l *leaver) {
	l.host.domains["somebodys"] = &fakeDomain{xml: somebodysDomain, running: true}
	l.host.pools["default"].volumes["somebodys-root.qcow2"] = baseVolumeXML
	l.join(nil)
	l.reachable(false)
	l.delete()
	l.expect(infrav1.CleanupStalledCondition, "True/Unreachable")
	l.Consistently(l.nodeExists, time.Second, leaveTick).Should(BeTrue(), "without a request it is not abandoned")
	first := l.machine()
	l.change(func(lm *infrav1.LibvirtMachine) { lm.Annotations = map[string]string{infrav1.AbandonAnnotation: ""} })
	l.expectObjectGone()
	l.Expect(l.nodeExists()).To(BeFalse())
	l.expectEvents("Abandoned")
	lh := l.lhost()
	l.Expect(lh.Status.MachineRef).To(BeNil())
	l.Expect(lh.Status.Leftovers).To(HaveLen(1))
	l.Expect(lh.Status.Leftovers[0].Domain).To(Equal(l.nodeName()))
	l.Expect(lh.Status.Leftovers[0].MachineUID).To(Equal(string(first.UID)))
	l.Expect(l.ended()).To(BeEmpty(), "the host is away")

	// The same names, as 5-Spot creates them the next day.
	l.Expect(l.c.Delete(l.t.Context(), l.owner())).To(Succeed())
	l.Expect(l.addMachineAs(l.name, "host-"+l.name, nil)).To(Succeed())
	l.expect(infrav1.MachineReadyCondition, "False/"+infrav1.HostHasLeftoversReason)
	l.Consistently(func() bool { return conditions.IsTrue(l.machine(), infrav1.MachineReadyCondition) }, time.Second, leaveTick).Should(BeFalse())
	l.reachable(true)
	l.expect(infrav1.MachineReadyCondition, "True/Running")
	l.Expect(l.lhost().Status.Leftovers).To(BeEmpty())
	steps := l.host.did()
	removed := slices.Index(steps, "undefine "+l.nodeName())
	l.Expect(removed).To(BeNumerically(">", 0))
	l.Expect(steps[:removed]).To(ContainElements("destroy "+l.nodeName(), "delete volume default/"+l.nodeName()+"-root.qcow2", "remove directory "+l.nodeName()))
	l.Expect(steps[removed:]).To(ContainElement("define "+l.nodeName()), "the new machine comes after the old one")
	for _, step := range steps {
		l.Expect(strings.Contains(step, "somebodys")).To(BeFalse(), step)
	}
	l.delete()
	l.expectGone()
}

func abandonedLate(l *leaver) {
	l.join(nil)
	l.reachable(false)
	l.delete()
	l.expect(infrav1.CleanupStalledCondition, "True/Unreachable")
	l.expectObjectGone()
	l.Expect(time.Since(l.deletedAt)).To(BeNumerically(">=", time.Second), "times of objects are whole seconds")
	l.Expect(l.lhost().Status.Leftovers).To(HaveLen(1))
	l.reachable(true)
	l.Eventually(func() []infrav1.HostLeftover { return l.lhost().Status.Leftovers }, leaveBound, leaveTick).Should(BeEmpty(), "also when no machine follows")
	l.Expect(l.host.did()).To(ContainElement("undefine " + l.nodeName()))
}

func TestAMachineIsAbandonedOnlyWhenItMayBe(t *testing.T) {
	now := time.Now()
	stalledFor := func(d time.Duration) []metav1.Condition {
		return []metav1.Condition{{Type: infrav1.CleanupStalledCondition, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-d))}}
	}
	for _, row := range []struct {
		name       string
		limit      *int32
		annotated  bool
		conditions []metav1.Condition
		want       bool
		due        time.Time
	}{
		{"nothing is said", nil, false, stalledFor(time.Hour), false, time.Time{}},
		{"the annotation says so", nil, true, nil, true, time.Time{}},
		{"it has just stalled", new(int32(60)), false, nil, false, now.Add(time.Minute)},
		{"it has stalled for less than its limit", new(int32(60)), false, stalledFor(20 * time.Second), false, now.Add(40 * time.Second)},
		{"it has stalled for its limit", new(int32(60)), false, stalledFor(time.Minute), true, now},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			lm := &infrav1.LibvirtMachine{}
			lm.Spec.Deletion.AbandonAfterSeconds = row.limit
			lm.Status.Conditions = row.conditions
			if row.annotated {
				lm.Annotations = map[string]string{infrav1.AbandonAnnotation: ""}
			}
			due, at := (&scope{machine: lm, before: lm}).abandonAt(now)
			g.Expect(due).To(Equal(row.want))
			g.Expect(at).To(BeTemporally("==", row.due))
		})
	}
}

func TestALeftoverIsRemovedAsItsMachineWouldBe(t *testing.T) {
	for name, change := range map[string]func(*infrav1.LibvirtMachine){
		"on a pool of the host": func(lm *infrav1.LibvirtMachine) { lm.Status.VCPUs = 1 },
		"never seen":            func(*infrav1.LibvirtMachine) {},
		"on tmpfs, with data disks": func(lm *infrav1.LibvirtMachine) {
			lm.Spec.RootDisk.EphemeralPool = true
			lm.Spec.AdditionalDisks = []infrav1.AdditionalDiskSpec{{Name: "a", Size: resource.MustParse("1Mi"), StoragePool: "default"}, {Name: "b", Size: resource.MustParse("1Mi"), StoragePool: "slow"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			lm := newObjects().lmachine
			lm.Status.NodeName = "ns-prod-m"
			change(lm)
			want := identityOf(lm)
			for i := range want.DataDisks {
				want.DataDisks[i].Bytes = 0
			}
			NewWithT(t).Expect(identityOfLeftover(lm.Namespace, leftoverOf(lm))).To(Equal(want))
		})
	}
}

// abandon has a machine that runs lose its host, and deletes it with the annotation.
func (b *bench) abandon(change func(*infrav1.LibvirtHost)) *infrav1.LibvirtMachine {
	lm, _ := b.reconcile()
	lm.Annotations = map[string]string{infrav1.AbandonAnnotation: ""}
	b.Expect(b.r.Client.Update(b.t.Context(), lm)).To(Succeed())
	b.connector.err = hosts.NewConfigError(infrav1.UnreachableReason, "no route")
	lh := b.lhost()
	change(lh)
	b.Expect(b.r.Client.Status().Update(b.t.Context(), lh)).To(Succeed())
	b.delete()
	lm, _ = b.reconcile()
	return lm
}

func TestAHostThatRemembersEnoughLetsNoMoreGo(t *testing.T) {
	b := newBench(t, nil)
	lm := b.abandon(func(lh *infrav1.LibvirtHost) {
		for i := range infrav1.MaxLeftovers {
			lh.Status.Leftovers = append(lh.Status.Leftovers, infrav1.HostLeftover{Machine: "x", MachineUID: fmt.Sprint(i), Domain: "x", AbandonedAt: metav1.Now()})
		}
	})
	b.Expect(lm.Finalizers).To(ContainElement(infrav1.MachineFinalizer))
	b.Expect(conditions.GetMessage(lm, infrav1.CleanupStalledCondition)).To(ContainSubstring("status.leftovers"))
	b.Expect(b.lhost().Status.MachineRef).NotTo(BeNil())
}

func TestAMachineWhoseLibvirtHostIsGoneCanBeAbandoned(t *testing.T) {
	b := newBench(t, nil)
	lm, _ := b.reconcile()
	lm.Annotations = map[string]string{infrav1.AbandonAnnotation: ""}
	b.Expect(b.r.Client.Update(t.Context(), lm)).To(Succeed())
	b.Expect(b.r.Client.Delete(t.Context(), b.lhost())).To(Succeed())
	b.delete()
	lm, _ = b.reconcile()
	b.Expect(lm).To(BeNil())
}

// collect has the collector look at the host, which is ready.
func (b *bench) collect() *infrav1.LibvirtHost {
	_, err := b.r.collect(b.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "h"}})
	b.Expect(err).NotTo(HaveOccurred())
	return b.lhost()
}

func TestALeftoverStaysRecordedUntilItIsGone(t *testing.T) {
	b := newBench(t, nil)
	before := b.connector.host.inventory()
	b.Expect(b.abandon(func(*infrav1.LibvirtHost) {})).To(BeNil())
	b.Expect(b.collect().Status.Leftovers[0].Message).To(ContainSubstring("no route"))
	b.connector.err = nil
	b.connector.host.failAt = len(b.connector.host.steps)
	b.Expect(b.collect().Status.Leftovers[0].Message).To(ContainSubstring("injected"))
	b.Expect(b.collect().Status.Leftovers).To(BeEmpty())
	b.Expect(b.connector.host.inventory()).To(Equal(before))
}

func TestALeftoverWhoseDomainIsSomebodyElsesByNowIsForgotten(t *testing.T) {
	b := newBench(t, nil)
	b.Expect(b.abandon(func(*infrav1.LibvirtHost) {})).To(BeNil())
	b.connector.err = nil
	other := desired().Domain
	other.Owner.UID, other.UUID = "other", domain.UUID("other")
	xml, err := domain.XML(other)
	b.Expect(err).NotTo(HaveOccurred())
	b.connector.host.domains["ns-prod-m"] = &fakeDomain{xml: xml, running: true}
	untouched := b.connector.host.inventory()
	b.Expect(b.collect().Status.Leftovers).To(BeEmpty())
	b.Expect(b.connector.host.inventory()).To(Equal(untouched))
}
