// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/caplv/caplv/operator/job"
)

var object = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}}

// watch starts the Runner's source and returns the queue that it fills.
func watch(t *testing.T, g Gomega, r *job.Runner) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	t.Helper()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(queue.ShutDown)
	g.Expect(r.Source().Start(t.Context(), queue)).To(Succeed())
	return queue
}

func TestAJobRunsOnceAndWakesItsObject(t *testing.T) {
	g := NewWithT(t)
	r := job.New(t.Context())
	queue := watch(t, g, r)
	release := make(chan struct{})
	runs := make(chan struct{}, 2)
	run := func(context.Context) error {
		runs <- struct{}{}
		<-release
		return errors.New("torn")
	}
	r.Start("k", object, run)
	r.Start("k", object, run)
	g.Eventually(runs).Should(Receive())
	state, known := r.State("k")
	g.Expect(known).To(BeTrue())
	g.Expect(state.Running).To(BeTrue())
	g.Expect(state.Started).To(BeTemporally("~", time.Now(), time.Minute))
	g.Expect(queue.Len()).To(BeZero())

	close(release)
	g.Eventually(queue.Len).Should(Equal(1))
	request, _ := queue.Get()
	g.Expect(request.String()).To(Equal("ns/m"))
	state, _ = r.State("k")
	g.Expect(state.Running).To(BeFalse())
	g.Expect(state.Err).To(MatchError("torn"))
	g.Consistently(runs, "50ms").ShouldNot(Receive(), "a job that has ended is not repeated before it is forgotten")

	g.Expect(r.Forget(t.Context(), "k")).To(Succeed())
	_, known = r.State("k")
	g.Expect(known).To(BeFalse())
	r.Start("k", object, run)
	g.Eventually(runs).Should(Receive())
}

func TestForgetCancelsAndWaits(t *testing.T) {
	g := NewWithT(t)
	r := job.New(t.Context())
	watch(t, g, r)
	r.Start("k", object, func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	g.Expect(r.Forget(t.Context(), "k")).To(Succeed())
	_, known := r.State("k")
	g.Expect(known).To(BeFalse())
	g.Expect(r.Forget(t.Context(), "unknown")).To(Succeed())

	stubborn := make(chan struct{})
	defer close(stubborn)
	r.Start("s", object, func(context.Context) error {
		<-stubborn
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	g.Expect(r.Forget(ctx, "s")).To(MatchError(context.DeadlineExceeded))
	_, known = r.State("s")
	g.Expect(known).To(BeTrue(), "what has not ended is not forgotten")
}

func TestJobsEndWithTheirRunner(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	r := job.New(ctx)
	ended := make(chan error, 1)
	r.Start("k", object, func(ctx context.Context) error {
		<-ctx.Done()
		ended <- ctx.Err()
		return ctx.Err()
	})
	cancel()
	g.Eventually(ended).Should(Receive(MatchError(context.Canceled)))
}
