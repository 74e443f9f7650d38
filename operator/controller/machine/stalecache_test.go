// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// TestAStaleCacheDoesNotAskAGuestTwiceToShutDown has the cache show the machine as it was before its guest was asked.
func TestAStaleCacheDoesNotAskAGuestTwiceToShutDown(t *testing.T) {
	b := newBench(t, nil)
	b.connector.host.stubborn = true
	lm, _ := b.reconcile()
	conditions.Set(lm, metav1.Condition{Type: infrav1.NodeJoinedCondition, Status: metav1.ConditionTrue, Reason: infrav1.NodeJoinedReason})
	b.Expect(b.r.Client.Status().Update(t.Context(), lm)).To(Succeed())
	b.delete()
	stale := &infrav1.LibvirtMachine{}
	b.Expect(b.r.Client.Get(t.Context(), key, stale)).To(Succeed())
	lm, result := b.reconcile()
	asked := lm.Status.Deletion.ShutdownRequestedAt
	b.Expect(asked).NotTo(BeNil())
	b.Expect(result.RequeueAfter).To(Equal(shutdownPoll))

	live, ok := b.r.Client.(client.WithWatch)
	b.Expect(ok).To(BeTrue())
	b.r.Client = interceptor.NewClient(live, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if lm, ok := o.(*infrav1.LibvirtMachine); ok {
			stale.DeepCopyInto(lm)
			return nil
		}
		return c.Get(ctx, k, o, opts...)
	}})
	// What comes of the status is not of interest: it is written from what is stale.
	_, _ = b.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	b.Expect(b.connector.host.did()).To(ContainElement("shutdown ns-prod-m"))
	asks := 0
	for _, step := range b.connector.host.did() {
		if step == "shutdown ns-prod-m" {
			asks++
		}
	}
	b.Expect(asks).To(Equal(1))
	b.Expect(live.Get(t.Context(), key, lm)).To(Succeed())
	b.Expect(lm.Status.Deletion.ShutdownRequestedAt.Equal(asked)).To(BeTrue())
}
