// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/ansible/ansibletest"
	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/hostsetup"
	"github.com/caplv/caplv/operator/job"
)

const (
	loginSecret   = "h-root"
	accountSecret = "h-ssh"
	hostName      = "h.default"
	patience      = 5 * time.Second
)

// runners give out one backend and one target, or an error.
type runners struct {
	backend *ansibletest.Backend
	pair    hostsetup.KeyPair

	mu    sync.Mutex
	err   error
	reach int
}

func (r *runners) Backend(context.Context, *infrav1.LibvirtHost) (ansible.Backend, error) {
	return r.backend, nil
}

func (r *runners) Reach(context.Context, *infrav1.LibvirtHost) (ansible.Host, string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reach++
	return ansible.Host{
		Name: hostName, Address: "b", Port: 22, User: "root", PrivateKey: string(r.pair.Private),
		HostKeys: []string{strings.Join(strings.Fields(string(r.pair.Public))[:2], " ")},
	}, fingerprint, r.err
}

func (r *runners) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// setupBench is a bench whose host is to be set up, and does not answer before that.
type setupBench struct {
	*bench
	backend *ansibletest.Backend
	runners *runners
}

func newSetupBench(t *testing.T, change func(*infrav1.LibvirtHost)) *setupBench {
	t.Helper()
	backend := ansibletest.New()
	b := &setupBench{backend: backend, runners: &runners{backend: backend, pair: newPair(t)}}
	b.bench = newBench(t, func(lh *infrav1.LibvirtHost) {
		lh.UID = "u1"
		lh.Spec.URI = "qemu+ssh://caplv@b/session"
		lh.Spec.SecretRef.Name = accountSecret
		lh.Spec.Bootstrap = &infrav1.HostBootstrap{
			User: "root", SecretRef: infrav1.LocalSecretReference{Name: loginSecret}, Mode: infrav1.BootstrapApply, Bridges: []string{"br0"},
			PackagePolicy: infrav1.PackagesInstall, DriftPolicy: infrav1.DriftReport, Backend: infrav1.BackendSidecar,
		}
		if change != nil {
			change(lh)
		}
	})
	b.connector.err = hosts.NewConfigError(infrav1.UnauthorizedReason, "the host does not know the account")
	b.create(loginSecret, map[string][]byte{infrav1.SSHPrivateKeySecretKey: []byte("key"), infrav1.BecomePasswordSecretKey: []byte("hunter22")})
	b.restart()
	return b
}

// restart replaces the reconciler by a new one, as another process would have it.
func (b *setupBench) restart() {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	b.t.Cleanup(cancel)
	jobs := job.New(ctx)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	b.t.Cleanup(queue.ShutDown)
	b.Expect(jobs.Source().Start(ctx, queue)).To(Succeed())
	old := b.r
	b.r = &Reconciler{
		Client: old.Client, APIReader: old.APIReader, Hosts: b.connector, Recorder: b.recorder, ProbeTimeout: time.Minute, now: old.now,
		Runners: b.runners, Jobs: jobs, follower: newFollower(jobs),
	}
	b.r.follower.interval = 10 * time.Millisecond
}

func (b *setupBench) create(name string, data map[string][]byte) {
	b.t.Helper()
	b.Expect(b.r.Client.Create(b.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name}, Data: data})).To(Succeed())
}

// until reconciles until a condition has this reason.
func (b *setupBench) until(conditionType, reason string) *infrav1.LibvirtHost {
	b.t.Helper()
	var lh *infrav1.LibvirtHost
	b.Eventually(func() string {
		lh, _ = b.reconcile()
		return conditions.GetReason(lh, conditionType)
	}, patience, 10*time.Millisecond).Should(Equal(reason), func() string { return fmt.Sprintf("conditions: %v", lh.Status.Conditions) })
	return lh
}

// untilRun reconciles until a run has begun that none of the known keys belongs to, and returns its request.
func (b *setupBench) untilRun(known ...string) ansible.Request {
	b.t.Helper()
	b.Eventually(func() int {
		b.reconcile()
		return len(b.backend.Keys())
	}, patience, 10*time.Millisecond).Should(Equal(len(known) + 1))
	requests := b.backend.Requests()
	return requests[len(requests)-1]
}

// end ends the run that was begun last.
func (b *setupBench) end(result ansible.HostResult) {
	b.t.Helper()
	keys := b.backend.Keys()
	b.Expect(keys).NotTo(BeEmpty())
	b.backend.End(keys[len(keys)-1], result)
}

// setUp brings the host to where a first run has set it up and it answers.
func (b *setupBench) setUp() *infrav1.LibvirtHost {
	b.t.Helper()
	b.untilRun()
	b.connector.err = nil
	b.end(ansible.HostResult{Phase: ansible.Succeeded, OK: 100, Changed: 40})
	b.until(infrav1.BootstrappedCondition, infrav1.BootstrappedReason)
	return b.until(infrav1.HostReadyCondition, infrav1.HostReadyReason)
}

// change changes the spec, as an API server would: with a new generation.
func (b *setupBench) change(change func(*infrav1.LibvirtHost)) {
	b.t.Helper()
	lh := &infrav1.LibvirtHost{}
	b.Expect(b.r.Client.Get(b.t.Context(), key, lh)).To(Succeed())
	base := lh.DeepCopy()
	change(lh)
	lh.Generation++
	b.Expect(b.r.Client.Patch(b.t.Context(), lh, client.MergeFrom(base))).To(Succeed())
}

// settle reconciles until the last run is recorded as ended, and returns the host and when it is looked at again.
func (b *setupBench) settle() (*infrav1.LibvirtHost, ctrl.Result) {
	b.t.Helper()
	var lh *infrav1.LibvirtHost
	var result ctrl.Result
	b.Eventually(func() bool {
		lh, result = b.reconcile()
		return !hostsetup.Active(lh.Status.Bootstrap.Run)
	}, patience, 10*time.Millisecond).Should(BeTrue())
	return lh, result
}

// told are the Events so far, each as "TYPE REASON MESSAGE".
func (b *setupBench) told() []string {
	var told []string
	for len(b.recorder.Events) > 0 {
		told = append(told, <-b.recorder.Events)
	}
	return told
}

func reasons(told []string) []string {
	var reasons []string
	for _, text := range told {
		reasons = append(reasons, strings.Join(strings.Fields(text)[:2], " "))
	}
	return reasons
}

func request() ctrl.Request { return ctrl.Request{NamespacedName: key} }

// gone says whether the object is.
func (b *setupBench) gone() bool {
	return apierrors.IsNotFound(b.r.Client.Get(b.t.Context(), key, &infrav1.LibvirtHost{}))
}
