// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package wake_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/controller/wake"
)

func TestSpecOrMetadataChanged(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*infrav1.LibvirtMachine)
		want   bool
	}{
		{"a status write does not wake", func(m *infrav1.LibvirtMachine) { m.Status.DomainState = "running"; m.ResourceVersion = "2" }, false},
		{"managed fields do not wake", func(m *infrav1.LibvirtMachine) { m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}} }, false},
		{"a new generation wakes", func(m *infrav1.LibvirtMachine) { m.Generation = 2 }, true},
		{"a deletion wakes", func(m *infrav1.LibvirtMachine) { m.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, true},
		{"an annotation wakes", func(m *infrav1.LibvirtMachine) { m.Annotations = map[string]string{"a": "b"} }, true},
		{"a label wakes", func(m *infrav1.LibvirtMachine) { m.Labels = map[string]string{"a": "b"} }, true},
		{"an owner wakes", func(m *infrav1.LibvirtMachine) { m.OwnerReferences = []metav1.OwnerReference{{Name: "m"}} }, true},
		{"a finalizer wakes", func(m *infrav1.LibvirtMachine) { m.Finalizers = []string{"f"} }, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			before := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Name: "m", Generation: 1, ResourceVersion: "1"}}
			after := before.DeepCopy()
			row.change(after)
			NewWithT(t).Expect(wake.SpecOrMetadataChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(Equal(row.want))
		})
	}
}

func TestRetryAfterGrowsWithTheTimeOfFailure(t *testing.T) {
	now := time.Unix(100000, 0)
	for _, row := range []struct {
		name    string
		failing time.Duration
		want    time.Duration
	}{
		{"at first it is 2 s", 0, 2 * time.Second},
		{"after a minute it is 15 s", time.Minute, 15 * time.Second},
		{"after a day it is the limit", 24 * time.Hour, 5 * time.Minute},
		{"a clock that went backwards does no harm", -time.Hour, 2 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := &metav1.Condition{LastTransitionTime: metav1.NewTime(now.Add(-row.failing))}
			NewWithT(t).Expect(wake.RetryAfter(c, now, 5*time.Minute)).To(Equal(row.want))
		})
	}
	NewWithT(t).Expect(wake.RetryAfter(nil, now, time.Minute)).To(Equal(2 * time.Second))
}

func TestJitterOnlyLengthensAndByAFifthAtMost(t *testing.T) {
	g := NewWithT(t)
	for range 1000 {
		g.Expect(wake.Jitter(10 * time.Second)).To(And(BeNumerically(">=", 10*time.Second), BeNumerically("<=", 12*time.Second)))
	}
}

func TestErrorsOfOneObjectDoNotSlowOthers(t *testing.T) {
	g := NewWithT(t)
	limiter := wake.RateLimiter()
	bad := reconcile.Request{NamespacedName: types.NamespacedName{Name: "bad"}}
	good := reconcile.Request{NamespacedName: types.NamespacedName{Name: "good"}}
	var last time.Duration
	for range 20 {
		last = limiter.When(bad)
	}
	g.Expect(last).To(And(BeNumerically(">=", time.Minute), BeNumerically("<=", 72*time.Second)))
	g.Expect(limiter.When(good)).To(BeNumerically("<", time.Second))
	limiter.Forget(bad)
	g.Expect(limiter.When(bad)).To(BeNumerically("<", time.Second))
}
