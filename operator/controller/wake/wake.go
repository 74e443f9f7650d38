// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wake decides which changes wake a reconciler, and when it wakes by itself.
package wake

import (
	"math/rand/v2"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const minRetry = 2 * time.Second

// SpecOrMetadataChanged lets through everything but updates of the status, most of which are the reconciler's own.
func SpecOrMetadataChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld, e.ObjectNew
		return before.GetGeneration() != after.GetGeneration() ||
			!before.GetDeletionTimestamp().Equal(after.GetDeletionTimestamp()) ||
			!apiequality.Semantic.DeepEqual(before.GetAnnotations(), after.GetAnnotations()) ||
			!apiequality.Semantic.DeepEqual(before.GetLabels(), after.GetLabels()) ||
			!apiequality.Semantic.DeepEqual(before.GetOwnerReferences(), after.GetOwnerReferences()) ||
			!apiequality.Semantic.DeepEqual(before.GetFinalizers(), after.GetFinalizers())
	}}
}

// RetryAfter returns when to try again something that the condition says has been failing: a quarter of the time that
// it has been failing, between 2 s and limit. A mended cause is thus found soon, and a lasting one is not hammered.
// Nothing has to be remembered for it over a restart.
func RetryAfter(condition *metav1.Condition, now time.Time, limit time.Duration) time.Duration {
	if condition == nil {
		return minRetry
	}
	failing := now.Sub(condition.LastTransitionTime.Time)
	return min(max(failing/4, minRetry), limit)
}

// Jitter lengthens a duration by up to a fifth, so that objects that came up together do not stay in step.
func Jitter(d time.Duration) time.Duration {
	return d + time.Duration(rand.Int64N(int64(d)/5+1)) //nolint:gosec // Jitter needs no secrecy.
}

const (
	// firstBackoff and maxBackoff bound the pauses after errors, such as those of the API server.
	firstBackoff = 200 * time.Millisecond
	maxBackoff   = time.Minute
)

// jittered lengthens the pauses of another rate limiter.
type jittered struct {
	workqueue.TypedRateLimiter[reconcile.Request]
}

func (j jittered) When(item reconcile.Request) time.Duration {
	return Jitter(j.TypedRateLimiter.When(item))
}

// Options completes a reconciler's options with pauses of its own.
func Options(o controller.Options) controller.Options {
	o.RateLimiter = RateLimiter()
	return o
}

// RateLimiter returns a reconciler's pauses after errors: for each object on its own they double from 200 ms up to a minute,
// with jitter. Objects do not slow each other.
func RateLimiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return jittered{workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstBackoff, maxBackoff)}
}
