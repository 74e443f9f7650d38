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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/hosts"
)

// endings are ends of a run that are no success, and their reasons.
var endings = []struct {
	result  ansible.HostResult
	want    string
	message string
}{
	{ansible.HostResult{Phase: ansible.Failed, OK: 3, Failed: 1, FailedTask: "Libvirt is installed", Message: "no package"}, infrav1.BootstrapFailedReason,
		`attempt 1: task "Libvirt is installed" failed: no package`},
	{ansible.HostResult{Phase: ansible.Failed, FailedTask: "The platform is known", Message: "Missing sudo password"}, infrav1.BootstrapFailedReason, "become-password"},
	{ansible.HostResult{Phase: ansible.Failed, FailedTask: "x", Message: "sudo: hunter22 is wrong"}, infrav1.BootstrapFailedReason, "sudo: *** is wrong"},
	{ansible.HostResult{Phase: ansible.Unreachable, Message: "no route"}, infrav1.BootstrapUnreachableReason, "no route"},
	{ansible.HostResult{Phase: ansible.TimedOut, Message: "after 1h"}, infrav1.BootstrapTimedOutReason, "spec.bootstrap.timeout"},
	{ansible.HostResult{Phase: ansible.Canceled, Message: "stopped"}, infrav1.BootstrapCanceledReason, "stopped"},
	{ansible.HostResult{Phase: ansible.Lost, Message: "killed"}, infrav1.BootstrapLostReason, "killed"},
}

func TestARunThatDoesNotSucceedIsNamedAndBegunAgain(t *testing.T) {
	for _, row := range endings {
		t.Run(string(row.result.Phase)+" with "+row.result.Message, func(t *testing.T) {
			b := newSetupBench(t, nil)
			first := b.untilRun()
			b.end(row.result)
			lh := b.until(infrav1.BootstrappedCondition, row.want)
			b.Expect(conditions.GetMessage(lh, infrav1.BootstrappedCondition)).To(ContainSubstring(row.message))
			b.Expect(lh.Status.Bootstrap.AppliedAt).To(BeNil())
			b.Expect(lh.Status.Bootstrap.Run.FailedTask).To(Equal(row.result.FailedTask))
			b.Expect(conditions.GetReason(lh, infrav1.HostReadyCondition)).To(Equal(infrav1.WaitingForBootstrapReason))

			_, result := b.reconcile()
			b.Expect(b.backend.Keys()).To(HaveLen(1), "it is not begun again at once")
			b.Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", 5*time.Second)))
			b.now = b.now.Add(6 * time.Second)
			second := b.untilRun(first.Key)
			b.Expect(second.Key).NotTo(Equal(first.Key))
			b.connector.err = nil
			b.end(ansible.HostResult{Phase: ansible.Succeeded, OK: 100})
			lh = b.until(infrav1.HostReadyCondition, infrav1.HostReadyReason)
			b.Expect(conditions.IsTrue(lh, infrav1.BootstrappedCondition)).To(BeTrue())
			b.Expect(lh.Status.Bootstrap.Run).To(And(HaveField("Attempt", int32(2)), HaveField("Message", ""), HaveField("FailedTask", "")))
		})
	}
}

func TestWhoDoesNotTakeARunIsNamedAndAskedAgain(t *testing.T) {
	for _, row := range []struct {
		reason ansible.Reason
		want   string
		// again says that it is asked for the same run.
		again bool
	}{
		{ansible.Unavailable, infrav1.RunnerUnavailableReason, true},
		{ansible.Unauthorized, infrav1.RunnerUnavailableReason, true},
		{ansible.Overloaded, infrav1.BootstrapQueuedReason, true},
		{ansible.Rejected, infrav1.RunRejectedReason, false},
	} {
		t.Run(string(row.reason), func(t *testing.T) {
			b := newSetupBench(t, nil)
			b.backend.Fail(&ansible.Error{Reason: row.reason, Message: "words"})
			lh, result := b.reconcile()
			b.Expect(conditions.GetReason(lh, infrav1.BootstrappedCondition)).To(Equal(row.want))
			b.Expect(conditions.GetMessage(lh, infrav1.BootstrappedCondition)).To(ContainSubstring("words"))
			b.Expect(result.RequeueAfter).To(BeNumerically(">", 0))
			recorded := lh.Status.Bootstrap.Run.Key
			if !row.again {
				b.Expect(lh.Status.Bootstrap.TouchedAt).To(BeNil(), "nothing was done on the host")
			}

			b.backend.Fail(nil)
			b.now = b.now.Add(10 * time.Second)
			request := b.untilRun()
			if row.again {
				b.Expect(request.Key).To(Equal(recorded))
			} else {
				b.Expect(request.Key).NotTo(Equal(recorded))
			}
			b.connector.err = nil
			b.end(ansible.HostResult{Phase: ansible.Succeeded})
			b.until(infrav1.HostReadyCondition, infrav1.HostReadyReason)
		})
	}
}

func TestWhatIsMissingForARunIsNamedAndMends(t *testing.T) {
	for _, reason := range []string{
		infrav1.SecretNotFoundReason, infrav1.InvalidPrivateKeyReason, infrav1.HostKeyMismatchReason, infrav1.HostKeyNotPinnedReason, infrav1.UnreachableReason,
		infrav1.RunnerUnavailableReason,
	} {
		t.Run(reason, func(t *testing.T) {
			b := newSetupBench(t, nil)
			b.runners.fail(hosts.NewConfigError(reason, "words"))
			lh, result := b.reconcile()
			b.Expect(conditions.GetReason(lh, infrav1.BootstrappedCondition)).To(Equal(reason))
			b.Expect(result.RequeueAfter).To(And(BeNumerically(">=", 2*time.Second), BeNumerically("<", 3*time.Second)))
			b.Expect(lh.Status.Bootstrap).To(BeNil())
			b.Expect(lh.Status.HostKeyFingerprint).To(BeEmpty(), "a key is recorded only with a run")
			b.Expect(b.backend.Submits()).To(BeZero())

			b.runners.fail(nil)
			b.setUp()
		})
	}
}

func TestAFailureIsTriedAgainAtOnceWhenTheObjectOrASecretChanges(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(b *setupBench)
	}{
		{"what is wanted", func(b *setupBench) {
			b.change(func(lh *infrav1.LibvirtHost) { lh.Spec.Bootstrap.Bridges = []string{"br1"} })
		}},
		{"how the host is reached", func(b *setupBench) { b.change(func(lh *infrav1.LibvirtHost) { lh.Spec.Bootstrap.Port = 2222 }) }},
		{"the Secret", func(b *setupBench) {
			secret := &corev1.Secret{}
			b.Expect(b.r.Client.Get(b.t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: loginSecret}, secret)).To(Succeed())
			secret.Data[infrav1.BecomePasswordSecretKey] = []byte("other")
			b.Expect(b.r.Client.Update(b.t.Context(), secret)).To(Succeed())
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newSetupBench(t, nil)
			first := b.untilRun()
			b.end(ansible.HostResult{Phase: ansible.Failed, FailedTask: "x"})
			b.settle()
			row.change(b)
			b.untilRun(first.Key)
			lh, _ := b.reconcile()
			b.Expect(lh.Status.Bootstrap.Run.Attempt).To(Equal(int32(1)), "it is another matter")
		})
	}
}

func TestASpecThatChangesDuringARunIsBroughtAboutByTheNext(t *testing.T) {
	b := newSetupBench(t, nil)
	first := b.untilRun()
	b.change(func(lh *infrav1.LibvirtHost) { lh.Spec.Bootstrap.Bridges = []string{"br1"} })
	b.reconcile()
	b.Expect(b.backend.Cancels()).To(BeZero())
	b.end(ansible.HostResult{Phase: ansible.Succeeded})
	second := b.untilRun(first.Key)
	b.Expect(second.Variables["caplv_bridges"]).To(ConsistOf("br1"))
}

func TestARunThatNobodyKnowsAnyMoreIsLostAndBegunAgain(t *testing.T) {
	b := newSetupBench(t, nil)
	first := b.untilRun()
	b.backend.Begin(first.Key)
	b.until(infrav1.BootstrappedCondition, infrav1.BootstrapRunningReason)
	b.backend.Lose(first.Key)
	lh := b.until(infrav1.BootstrappedCondition, infrav1.BootstrapLostReason)
	b.Expect(lh.Status.Bootstrap.AppliedAt).To(BeNil())
	b.now = b.now.Add(6 * time.Second)
	second := b.untilRun(first.Key)
	b.Expect(second.Key).NotTo(Equal(first.Key))
}

func TestABackendThatIsAwayDuringARunIsWaitedFor(t *testing.T) {
	b := newSetupBench(t, nil)
	first := b.untilRun()
	b.backend.Fail(&ansible.Error{Reason: ansible.Unavailable, Message: "no socket"})
	lh := b.until(infrav1.BootstrappedCondition, infrav1.RunnerUnavailableReason)
	b.Expect(lh.Status.Bootstrap.Run.Key).To(Equal(first.Key))
	b.backend.Fail(nil)
	b.end(ansible.HostResult{Phase: ansible.Succeeded})
	b.until(infrav1.BootstrappedCondition, infrav1.BootstrappedReason)
	b.Expect(b.backend.Keys()).To(HaveLen(1))
}

// failPatch has a write of the status fail that holds a run in this phase.
func (b *setupBench) failPatch(phase infrav1.RunPhase) (mend func()) {
	b.t.Helper()
	whole := b.r.Client
	watch, ok := whole.(client.WithWatch)
	b.Expect(ok).To(BeTrue())
	b.r.Client = interceptor.NewClient(watch, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if lh, ok := o.(*infrav1.LibvirtHost); ok && lh.Status.Bootstrap != nil && lh.Status.Bootstrap.Run.Phase == phase {
				return errors.New("the operator ends here")
			}
			return c.SubResource(sub).Patch(ctx, o, patch, opts...)
		},
	})
	return func() { b.r.Client = whole }
}

func TestAnOperatorThatEndsAnywhereRepeatsAndForgetsNothing(t *testing.T) {
	reconcile := func(b *setupBench) error {
		_, err := b.r.Reconcile(b.t.Context(), ctrl.Request{NamespacedName: key})
		return err
	}
	t.Run("before the intent is recorded", func(t *testing.T) {
		b := newSetupBench(t, nil)
		mend := b.failPatch(infrav1.RunSubmitting)
		b.Expect(reconcile(b)).To(MatchError(ContainSubstring("ends here")))
		b.Expect(b.backend.Submits()).To(BeZero(), "nobody is asked for what is not recorded")
		mend()
		b.restart()
		b.setUp()
	})
	t.Run("between the intent and the request", func(t *testing.T) {
		b := newSetupBench(t, nil)
		b.backend.Fail(&ansible.Error{Reason: ansible.Unavailable, Message: "words"})
		lh, _ := b.reconcile()
		recorded := lh.Status.Bootstrap.Run.Key
		b.backend.Fail(nil)
		b.restart()
		b.Expect(b.untilRun().Key).To(Equal(recorded))
		b.setUp()
	})
	t.Run("between the request and the record of its answer", func(t *testing.T) {
		b := newSetupBench(t, nil)
		mend := b.failPatch(infrav1.RunPhase(ansible.Queued))
		b.Expect(reconcile(b)).To(MatchError(ContainSubstring("ends here")))
		b.Expect(b.backend.Keys()).To(HaveLen(1))
		mend()
		b.restart()
		b.reconcile()
		b.Expect(b.backend.Keys()).To(HaveLen(1), "the same run")
		b.Expect(b.backend.Submits()).To(Equal(2))
		b.setUp()
		b.Expect(b.backend.Keys()).To(HaveLen(1))
	})
	t.Run("while the run goes on", func(t *testing.T) {
		b := newSetupBench(t, nil)
		b.untilRun()
		b.restart()
		b.setUp()
		b.Expect(b.backend.Submits()).To(Equal(1))
	})
	t.Run("when the run has ended", func(t *testing.T) {
		b := newSetupBench(t, nil)
		b.untilRun()
		b.connector.err = nil
		b.end(ansible.HostResult{Phase: ansible.Succeeded})
		b.restart()
		b.until(infrav1.HostReadyCondition, infrav1.HostReadyReason)
		b.Expect(b.backend.Keys()).To(HaveLen(1))
	})
}

func TestOfTwoOperatorsThatBothBelieveToLeadOneAsks(t *testing.T) {
	b := newSetupBench(t, nil)
	b.reconcile()
	b.end(ansible.HostResult{Phase: ansible.Failed, FailedTask: "x"})
	b.settle()
	b.now = b.now.Add(time.Minute)
	// The other one has read the object before this one records its intent.
	stale := &infrav1.LibvirtHost{}
	b.Expect(b.r.Client.Get(t.Context(), key, stale)).To(Succeed())
	second := b.untilRun(b.backend.Keys()...)
	other := *b.r
	other.APIReader = staleReader{b.r.Client, stale}
	other.now = func() time.Time { return b.now.Add(time.Millisecond) }
	result, err := other.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(result.RequeueAfter).To(BeNumerically(">", 0), "it decides again")
	b.Expect(b.backend.Keys()).To(HaveLen(2))
	lh, _ := b.reconcile()
	b.Expect(lh.Status.Bootstrap.Run.Key).To(Equal(second.Key))
}

// staleReader reads one object as it was.
type staleReader struct {
	client.Reader
	stale *infrav1.LibvirtHost
}

func (r staleReader) Get(ctx context.Context, name client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if lh, ok := o.(*infrav1.LibvirtHost); ok {
		r.stale.DeepCopyInto(lh)
		return nil
	}
	return r.Reader.Get(ctx, name, o, opts...)
}

func TestASecretThatSomebodyElseMakesFirstIsTaken(t *testing.T) {
	b := newSetupBench(t, nil)
	whole := b.r.Client
	watch, ok := whole.(client.WithWatch)
	b.Expect(ok).To(BeTrue())
	b.r.Client = interceptor.NewClient(watch, interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "secrets"}, o.GetName())
	}})
	_, err := b.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	b.Expect(apierrors.IsAlreadyExists(err)).To(BeTrue())
	b.Expect(b.backend.Submits()).To(BeZero())
	b.r.Client = whole
	b.setUp()
}
