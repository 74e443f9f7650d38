// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package baseimage

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/job"
)

// bench is a Stager with one host and one cluster.
type bench struct {
	*WithT
	t        *testing.T
	stager   *Stager
	backend  *backend
	runners  *runners
	fetcher  *fetcher
	client   client.Client
	lcluster *infrav1.LibvirtCluster
	kill     context.CancelFunc
}

func newBench(t *testing.T, change func(*infrav1.LibvirtHost, *infrav1.LibvirtCluster)) *bench {
	t.Helper()
	b := &bench{WithT: NewWithT(t), t: t, backend: newBackend(), fetcher: &fetcher{}}
	b.SetDefaultEventuallyTimeout(10 * time.Second)
	scheme := runtime.NewScheme()
	b.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
	b.Expect(corev1.AddToScheme(scheme)).To(Succeed())
	lh := &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "h", UID: "uid"}, Spec: infrav1.LibvirtHostSpec{
		URI: "qemu+ssh://caplv@192.0.2.1/session", Bootstrap: &infrav1.HostBootstrap{Backend: infrav1.BackendSidecar},
	}}
	b.lcluster = &infrav1.LibvirtCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}, Spec: infrav1.LibvirtClusterSpec{BaseImage: &infrav1.BaseImage{
		Pool: "default", VolumeName: "base.qcow2", Delivery: infrav1.DeliveryPush,
		Source: infrav1.BaseImageSource{Type: infrav1.SourceTypeHTTPS, HTTPS: &infrav1.HTTPSBaseImage{URL: "https://mirror.example.com/base.qcow2", SHA256: "aa"}},
	}}}
	if change != nil {
		change(lh, b.lcluster)
	}
	b.client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(lh).WithObjects(lh).Build()
	b.runners = &runners{backend: b.backend}
	b.restart()
	return b
}

// restart is an operator that knows nothing but what the API server has.
func (b *bench) restart() {
	if b.kill != nil {
		b.kill()
	}
	var ctx context.Context
	ctx, b.kill = context.WithCancel(b.t.Context())
	b.stager = &Stager{Client: b.client, APIReader: b.client, Fetcher: b.fetcher, Runners: b.runners, Jobs: job.New(ctx)}
}

func (b *bench) host() *infrav1.LibvirtHost {
	lh := &infrav1.LibvirtHost{}
	b.Expect(b.client.Get(b.t.Context(), client.ObjectKey{Namespace: "ns", Name: "h"}, lh)).To(Succeed())
	return lh
}

func (b *bench) stage() error {
	return b.stager.Stage(b.t.Context(), &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}}, b.host(), b.lcluster)
}

// reason is that of an *Error, or the text of another error.
func reason(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// outcome stages until the job has ended, and returns how.
func (b *bench) outcome() error {
	b.t.Helper()
	var err error
	b.Eventually(func() string {
		err = b.stage()
		return reason(err)
	}).ShouldNot(Equal(infrav1.BaseImageStagingReason))
	return err
}

// submitted waits for the nth run and returns its request.
func (b *bench) submitted(n int) ansible.Request {
	b.t.Helper()
	b.Eventually(b.backend.keys).Should(HaveLen(n))
	b.backend.mu.Lock()
	defer b.backend.mu.Unlock()
	return b.backend.requests[b.backend.order[n-1]]
}

func TestAnImageIsPushedOnceAndRecorded(t *testing.T) {
	b := newBench(t, nil)
	b.backend.events = []ansible.Event{{Sequence: 1, Type: ansible.Progressed, Message: "upload 34 % of 4 MiB"}}
	b.Expect(reason(b.stage())).To(Equal(infrav1.BaseImageStagingReason))
	request := b.submitted(1)
	b.Expect(request.Playbook).To(Equal(ansible.StageBaseImage))
	b.Expect(request.Variables).To(Equal(map[string]any{"caplv_mode": "session", "caplv_user": "caplv", "caplv_base_images": []any{map[string]any{
		"name": "base.qcow2", "pool": "default", "sha256": "aa", "src": "/cache/aa", "size": int64(4 << 20),
	}}}))
	b.Eventually(func() string { return b.stage().Error() }).Should(ContainSubstring("34 %"))
	record := Recorded(b.host(), b.lcluster.Spec.BaseImage)
	b.Expect(record.Run.Key).To(Equal(request.Key))
	b.Expect(record.Run.ID).To(Equal("7"))
	b.Expect(record.StagedAt).To(BeNil())
	b.Expect(b.fetcher.having).To(Equal(1), "the file must stay while it is pushed")

	b.backend.end(request.Key, ansible.Succeeded, ansible.HostResult{OK: 9, Changed: 1})
	b.Expect(b.outcome()).To(Succeed())
	lh := b.host()
	record = Recorded(lh, b.lcluster.Spec.BaseImage)
	b.Expect(record.SHA256).To(Equal(infrav1.SHA256("aa")))
	b.Expect(record.StagedAt).NotTo(BeNil())
	b.Expect(record.Run.Phase).To(Equal(infrav1.RunPhase("Succeeded")))
	b.Expect(record.Run.Changed).To(Equal(int32(1)))
	b.Expect(Current(lh, b.lcluster.Spec.BaseImage)).To(BeTrue())
	b.Expect(b.fetcher.having).To(BeZero())
	b.Expect(b.backend.keys()).To(HaveLen(1))
}

func TestARestartedOperatorGoesOnWithTheSameRun(t *testing.T) {
	b := newBench(t, nil)
	b.Expect(reason(b.stage())).To(Equal(infrav1.BaseImageStagingReason))
	request := b.submitted(1)
	b.restart()
	b.Expect(reason(b.stage())).To(Equal(infrav1.BaseImageStagingReason))
	b.Consistently(b.backend.keys, 300*time.Millisecond).Should(HaveLen(1))
	b.backend.end(request.Key, ansible.Succeeded, ansible.HostResult{})
	b.Expect(b.outcome()).To(Succeed())
	b.Expect(b.backend.keys()).To(HaveLen(1), "nothing runs twice")
}

func TestARunThatItsBackendHasForgottenIsNoSuccessAndIsBegunAgain(t *testing.T) {
	b := newBench(t, nil)
	b.Expect(reason(b.stage())).To(Equal(infrav1.BaseImageStagingReason))
	b.submitted(1)
	b.restart()
	b.backend.lose()
	err := b.outcome()
	b.Expect(reason(err)).To(Equal(infrav1.BaseImageStagingFailedReason))
	b.Expect(err.Error()).To(ContainSubstring("Lost"))
	b.Expect(Recorded(b.host(), b.lcluster.Spec.BaseImage).StagedAt).To(BeNil())
	b.Expect(reason(b.stage())).To(Equal(infrav1.BaseImageStagingReason))
	second := b.submitted(2)
	b.Expect(second.Key).NotTo(Equal(b.backend.keys()[0]))
	b.backend.end(second.Key, ansible.Succeeded, ansible.HostResult{})
	b.Expect(b.outcome()).To(Succeed())
	b.Expect(Recorded(b.host(), b.lcluster.Spec.BaseImage).Run.Attempt).To(Equal(int32(2)))
}

func TestHowARunEndsIsTold(t *testing.T) {
	for _, row := range []struct {
		phase  ansible.Phase
		result ansible.HostResult
		want   string
		words  string
	}{
		{ansible.Failed, ansible.HostResult{FailedTask: "base image", Message: "no space"}, infrav1.BaseImageStagingFailedReason, `task "base image" failed: no space`},
		{ansible.Unreachable, ansible.HostResult{Message: "No route to host"}, infrav1.UnreachableReason, "No route to host"},
		{ansible.TimedOut, ansible.HostResult{}, infrav1.BaseImageStagingFailedReason, "TimedOut"},
		{ansible.Canceled, ansible.HostResult{}, infrav1.BaseImageStagingFailedReason, "Canceled"},
	} {
		t.Run(string(row.phase), func(t *testing.T) {
			b := newBench(t, nil)
			b.Expect(reason(b.stage())).To(Equal(infrav1.BaseImageStagingReason))
			b.backend.end(b.submitted(1).Key, row.phase, row.result)
			err := b.outcome()
			b.Expect(reason(err)).To(Equal(row.want))
			b.Expect(err.Error()).To(ContainSubstring(row.words))
			record := Recorded(b.host(), b.lcluster.Spec.BaseImage)
			b.Expect(record.StagedAt).To(BeNil())
			b.Expect(record.Run.FinishedAt).NotTo(BeNil())
			b.Expect(record.Run.FailedTask).To(Equal(row.result.FailedTask))
		})
	}
}

func TestWhatStandsInTheWayBeforeARun(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*infrav1.LibvirtHost, *infrav1.LibvirtCluster)
		spoil  func(*bench)
		want   string
	}{
		{"no account that could bring it", func(lh *infrav1.LibvirtHost, _ *infrav1.LibvirtCluster) { lh.Spec.Bootstrap = nil }, nil, infrav1.HostNotManagedReason},
		{"an account that may only look", func(lh *infrav1.LibvirtHost, _ *infrav1.LibvirtCluster) {
			lh.Spec.Bootstrap.Mode = infrav1.BootstrapCheck
		}, nil, infrav1.HostNotManagedReason},
		{"the source fails", nil, func(b *bench) {
			b.fetcher.err = &Error{infrav1.BaseImageFetchFailedReason, "404"}
		}, infrav1.BaseImageFetchFailedReason},
		{"nobody who runs it", nil, func(b *bench) {
			b.backend.submit = &ansible.Error{Reason: ansible.Unavailable, Message: "no socket"}
		}, infrav1.RunnerUnavailableReason},
		{"a request that is refused", nil, func(b *bench) {
			b.backend.submit = &ansible.Error{Reason: ansible.Rejected, Message: "field"}
		}, infrav1.RunRejectedReason},
		{"AWX, which cannot push", func(lh *infrav1.LibvirtHost, _ *infrav1.LibvirtCluster) {
			lh.Spec.Bootstrap.Backend = infrav1.BackendAWX
		}, nil, infrav1.RunRejectedReason},
		{"Pull without TLS verification", func(_ *infrav1.LibvirtHost, lc *infrav1.LibvirtCluster) {
			lc.Spec.BaseImage.Delivery, lc.Spec.BaseImage.Source.HTTPS.InsecureSkipTLSVerify = infrav1.DeliveryPull, true
		}, nil, infrav1.BaseImageStagingFailedReason},
		{"Pull with a Secret that is not there", func(_ *infrav1.LibvirtHost, lc *infrav1.LibvirtCluster) {
			lc.Spec.BaseImage.Delivery = infrav1.DeliveryPull
			lc.Spec.BaseImage.Source.HTTPS.CredentialsSecretRef = &infrav1.CredentialsSecretReference{Name: "creds"}
		}, nil, infrav1.SecretNotFoundReason},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, row.change)
			if row.spoil != nil {
				row.spoil(b)
			}
			b.Expect(reason(b.outcome())).To(Equal(row.want))
			b.Expect(b.backend.keys()).To(BeEmpty())
			b.Expect(b.fetcher.having).To(BeZero())
		})
	}
}

func TestARunThatMayHaveReachedItsBackendIsAskedForUnderTheSameKey(t *testing.T) {
	b := newBench(t, nil)
	b.backend.submit = &ansible.Error{Reason: ansible.Unavailable, Message: "no answer"}
	b.Expect(reason(b.outcome())).To(Equal(infrav1.RunnerUnavailableReason))
	key := Recorded(b.host(), b.lcluster.Spec.BaseImage).Run.Key
	b.backend.mu.Lock()
	b.backend.submit = nil
	b.backend.mu.Unlock()
	b.Expect(reason(b.stage())).To(Equal(infrav1.BaseImageStagingReason))
	b.Expect(b.submitted(1).Key).To(Equal(key))
}

func TestAHostPullsWithTheCredentialsOfTheCluster(t *testing.T) {
	b := newBench(t, func(_ *infrav1.LibvirtHost, lc *infrav1.LibvirtCluster) {
		lc.Spec.BaseImage.Delivery = infrav1.DeliveryPull
		lc.Spec.BaseImage.Source.HTTPS.CredentialsSecretRef = &infrav1.CredentialsSecretReference{Name: "creds"}
	})
	b.Expect(b.client.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "creds"},
		Data: map[string][]byte{"username": []byte("u"), "password": []byte("p")}})).To(Succeed())
	b.Expect(reason(b.stage())).To(Equal(infrav1.BaseImageStagingReason))
	request := b.submitted(1)
	b.Expect(request.Variables["caplv_base_images"]).To(Equal([]any{map[string]any{
		"name": "base.qcow2", "pool": "default", "sha256": "aa",
		"sources": []any{map[string]any{"url": "https://mirror.example.com/base.qcow2", "username": "u", "password": "p"}},
	}}))
	b.Expect(b.fetcher.asked).To(BeZero())
	b.backend.end(request.Key, ansible.Succeeded, ansible.HostResult{})
	b.Expect(b.outcome()).To(Succeed())
}
