// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootartifact

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/artifact"
	"github.com/caplv/caplv/operator/hostctl"
	"github.com/caplv/caplv/operator/job"
)

const path = "/var/lib/caplv/boot"

// bench is a Stager with a real cache and a real server, with hosts h0, h1 and so on, and with the LibvirtCluster c of Cluster prod.
type bench struct {
	*WithT
	t      *testing.T
	stager *Stager
	mirror *mirror
	hosts  *fakeHosts
	client client.Client
	kill   context.CancelFunc
}

func newBench(t *testing.T, count int) *bench {
	t.Helper()
	b := &bench{WithT: NewWithT(t), t: t, mirror: newMirror(t), hosts: newFakeHosts()}
	b.SetDefaultEventuallyTimeout(20 * time.Second)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{infrav1.AddToScheme, clusterv1.AddToScheme, corev1.AddToScheme} {
		b.Expect(add(scheme)).To(Succeed())
	}
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Finalizers: []string{"test/keep"}}
	}
	lc := &infrav1.LibvirtCluster{ObjectMeta: meta("c")}
	lc.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "prod", UID: "uid-prod"}}
	lc.Spec.BootArtifacts = &infrav1.BootArtifacts{HostPath: path, Source: infrav1.BootArtifactsSource{Type: infrav1.SourceTypeHTTPS, HTTPS: &infrav1.HTTPSBootArtifacts{
		HTTPSAccess: infrav1.HTTPSAccess{InsecureSkipTLSVerify: true},
		KernelURL:   infrav1.HTTPSURL(b.mirror.URL + "/vmlinuz"), InitramfsURL: infrav1.HTTPSURL(b.mirror.URL + "/initramfs.img"),
	}}}
	objects := []client.Object{&clusterv1.Cluster{ObjectMeta: meta("prod")}, lc}
	for i := range count {
		objects = append(objects, &infrav1.LibvirtHost{ObjectMeta: meta(fmt.Sprint("h", i))})
	}
	b.client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&infrav1.LibvirtHost{}).WithObjects(objects...).Build()
	b.restart()
	return b
}

// restart is an operator that knows nothing but what the API server has: its cache is empty too.
func (b *bench) restart() {
	if b.kill != nil {
		b.kill()
	}
	var ctx context.Context
	ctx, b.kill = context.WithCancel(b.t.Context())
	cache, err := artifact.NewCache(b.t.TempDir(), artifact.Options{Fresh: time.Nanosecond})
	b.Expect(err).NotTo(HaveOccurred())
	b.stager = NewStager(b.client, b.client, cache, b.hosts, job.New(ctx))
}

func (b *bench) host(name string) *infrav1.LibvirtHost {
	lh := &infrav1.LibvirtHost{}
	b.Expect(b.client.Get(b.t.Context(), client.ObjectKey{Namespace: "ns", Name: name}, lh)).To(Succeed())
	return lh
}

func (b *bench) cluster() *infrav1.LibvirtCluster {
	lc := &infrav1.LibvirtCluster{}
	b.Expect(b.client.Get(b.t.Context(), client.ObjectKey{Namespace: "ns", Name: "c"}, lc)).To(Succeed())
	return lc
}

func (b *bench) change(change func(*infrav1.LibvirtCluster)) {
	lc := b.cluster()
	change(lc)
	b.Expect(b.client.Update(b.t.Context(), lc)).To(Succeed())
}

func (b *bench) stage(host, machine string) (Set, error) {
	lm := &infrav1.LibvirtMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: machine, UID: types.UID(machine)}}
	return b.stager.Stage(b.t.Context(), lm, b.host(host), b.cluster())
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
func (b *bench) outcome(host, machine string) (Set, error) {
	b.t.Helper()
	var set Set
	var err error
	b.Eventually(func() string {
		set, err = b.stage(host, machine)
		return reason(err)
	}, "20s", "5ms").ShouldNot(Equal(infrav1.BootArtifactsStagingReason))
	return set, err
}

// want is the set that the mirror has.
func (b *bench) want() Set {
	return setOf(path, digestOf(b.mirror.kernel), digestOf(b.mirror.initramfs))
}

func (b *bench) paths() []string {
	paths := []string{b.want().Kernel.Path(), b.want().Initramfs.Path()}
	if paths[0] > paths[1] {
		paths[0], paths[1] = paths[1], paths[0]
	}
	return paths
}

func TestBothFilesAreStagedOnceForManyMachinesInARow(t *testing.T) {
	b := newBench(t, 1)
	for i := range 5 {
		set, err := b.outcome("h0", fmt.Sprint("m", i))
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(set).To(Equal(b.want()), "the digests are those of the decompressed files")
		again, err := b.stage("h0", fmt.Sprint("m", i))
		b.Expect(err).NotTo(HaveOccurred(), "while it is fresh, nobody is asked again")
		b.Expect(again).To(Equal(set))
	}
	b.Expect(b.hosts.on("h0")).To(Equal(b.paths()))
	b.Expect(b.hosts.count()).To(Equal(2), "one transfer a file")
	b.Expect(b.mirror.fetched()).To(Equal(2), "one fetch a file")
	b.Expect(b.host("h0").Status.BootArtifacts).To(And(HaveLen(2), HaveEach(And(
		HaveField("ClusterName", "c"), HaveField("HostPath", path), HaveField("StagedAt", Not(BeNil()))))))
}

func TestManyHostsShareOneFetch(t *testing.T) {
	const count = 100
	b := newBench(t, count)
	for i := range count {
		_, err := b.stage(fmt.Sprint("h", i), fmt.Sprint("m", i))
		b.Expect(reason(err)).To(Equal(infrav1.BootArtifactsStagingReason))
	}
	for i := range count {
		b.Expect(b.outcome(fmt.Sprint("h", i), fmt.Sprint("m", i))).To(Equal(b.want()))
		b.Expect(b.hosts.on(fmt.Sprint("h", i))).To(Equal(b.paths()))
	}
	b.Expect(b.mirror.fetched()).To(Equal(2))
	b.Expect(b.hosts.count()).To(Equal(2 * count))
}

func TestProgressIsToldAndMachinesOfOneHostShareATransfer(t *testing.T) {
	b := newBench(t, 1)
	b.hosts.hold = make(chan struct{})
	b.Eventually(func() string {
		_, err := b.stage("h0", "m0")
		return err.Error()
	}).Should(MatchRegexp(`on their way to /var/lib/caplv/boot on the host: vmlinuz is sent to the host, [1-9][0-9]? % of 1 MiB`))
	b.Expect(b.host("h0").Status.BootArtifacts).To(And(HaveLen(2), HaveEach(HaveField("StagedAt", BeNil()))), "recorded before it is there")
	_, err := b.stage("h0", "m1")
	b.Expect(reason(err)).To(Equal(infrav1.BootArtifactsStagingReason))
	close(b.hosts.hold)
	b.Expect(b.outcome("h0", "m1")).To(Equal(b.want()))
	b.Expect(b.hosts.count()).To(Equal(2))
}

func TestARestartedOperatorFindsWhatIsThere(t *testing.T) {
	b := newBench(t, 1)
	b.hosts.hold = make(chan struct{})
	_, err := b.stage("h0", "m")
	b.Expect(reason(err)).To(Equal(infrav1.BootArtifactsStagingReason))
	b.Eventually(b.hosts.count).Should(Equal(1))
	b.restart()
	b.hosts.mu.Lock()
	b.hosts.hold = nil
	b.hosts.mu.Unlock()
	b.Expect(b.outcome("h0", "m")).To(Equal(b.want()))
	b.Expect(b.hosts.count()).To(Equal(3), "the first one was cut")
	b.restart()
	b.Expect(b.outcome("h0", "m")).To(Equal(b.want()))
	b.Expect(b.hosts.count()).To(Equal(3))
}

func TestAFileThatVanishesFromTheHostComesBack(t *testing.T) {
	b := newBench(t, 1)
	b.Expect(b.outcome("h0", "m0")).To(Equal(b.want()))
	b.hosts.mu.Lock()
	delete(b.hosts.files["h0"], b.want().Kernel)
	b.hosts.mu.Unlock()
	b.Expect(b.outcome("h0", "m1")).To(Equal(b.want()))
	b.Expect(b.hosts.on("h0")).To(Equal(b.paths()))
	b.Expect(b.hosts.count()).To(Equal(3))
}

func TestAKernelThatIsReplacedAtItsSourceLiesBesideTheOldOneUntilTheMachineIsGone(t *testing.T) {
	b := newBench(t, 1)
	b.Expect(b.outcome("h0", "m0")).To(Equal(b.want()))
	old := b.want().Kernel
	b.mirror.mu.Lock()
	b.mirror.kernel = []byte("a newer kernel")
	b.mirror.mu.Unlock()
	b.Expect(b.outcome("h0", "m1")).To(Equal(b.want()))
	b.Expect(b.hosts.on("h0")).To(ConsistOf(append(b.paths(), old.Path())))
	b.Expect(b.stager.Collect(b.t.Context(), b.host("h0"))).To(Succeed())
	b.Expect(b.hosts.on("h0")).To(Equal(b.paths()), "the cluster's next machine finds what it needs")
	b.Expect(b.host("h0").Status.BootArtifacts).To(HaveLen(2))
}

func TestWhatNobodyWantsAnyMoreIsRemoved(t *testing.T) {
	for _, row := range []struct {
		name    string
		prepare func(b *bench)
	}{
		{"the cluster has no boot artifacts any more", func(b *bench) {
			b.change(func(lc *infrav1.LibvirtCluster) { lc.Spec.BootArtifacts = nil })
		}},
		{"the cluster wants them elsewhere", func(b *bench) {
			b.change(func(lc *infrav1.LibvirtCluster) { lc.Spec.BootArtifacts.HostPath = "/srv/boot" })
		}},
		{"the LibvirtCluster is being deleted", func(b *bench) { b.Expect(b.client.Delete(b.t.Context(), b.cluster())).To(Succeed()) }},
		{"the Cluster is being deleted, which deletes the LibvirtCluster last", func(b *bench) {
			b.Expect(b.client.Delete(b.t.Context(), &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "prod"}})).To(Succeed())
		}},
		{"the host is being deleted", func(b *bench) { b.Expect(b.client.Delete(b.t.Context(), b.host("h0"))).To(Succeed()) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, 1)
			b.Expect(b.outcome("h0", "m0")).To(Equal(b.want()))
			b.Expect(b.stager.Collect(t.Context(), b.host("h0"))).To(Succeed())
			b.Expect(b.hosts.on("h0")).To(Equal(b.paths()), "it was still wanted")
			row.prepare(b)
			b.hosts.answer(&hostctl.Error{Code: hostctl.CodeIO, Message: "busy disk"})
			b.Expect(b.stager.Collect(t.Context(), b.host("h0"))).To(MatchError(ContainSubstring("busy disk")))
			b.Expect(b.host("h0").Status.BootArtifacts).To(HaveLen(1), "what could not be removed is not forgotten")
			b.Expect(b.stager.Collect(t.Context(), b.host("h0"))).To(Succeed())
			b.Expect(b.hosts.on("h0")).To(BeEmpty())
			b.Expect(b.host("h0").Status.BootArtifacts).To(BeEmpty())
			b.Expect(b.stager.Collect(t.Context(), b.host("h0"))).To(Succeed())
		})
	}
}

func TestWhatIsUnderWayEndsWithItsMachine(t *testing.T) {
	b := newBench(t, 1)
	b.hosts.hold = make(chan struct{})
	_, err := b.stage("h0", "m0")
	b.Expect(reason(err)).To(Equal(infrav1.BootArtifactsStagingReason))
	b.Eventually(b.hosts.count).Should(Equal(1))
	b.change(func(lc *infrav1.LibvirtCluster) { lc.Spec.BootArtifacts = nil })
	b.hosts.answer(&hostctl.Error{Code: hostctl.CodeBusy, Message: "the transfer is ending"})
	b.Expect(b.stager.Collect(t.Context(), b.host("h0"))).To(Succeed())
	b.Expect(b.host("h0").Status.BootArtifacts).To(BeEmpty())
	close(b.hosts.hold)
	b.Consistently(func() []string { return b.hosts.on("h0") }, "200ms").Should(BeEmpty())
}

func TestAnotherSourceEndsTheTransferOfTheFirst(t *testing.T) {
	b := newBench(t, 1)
	b.hosts.hold = make(chan struct{})
	_, err := b.stage("h0", "m0")
	b.Expect(reason(err)).To(Equal(infrav1.BootArtifactsStagingReason))
	b.Eventually(b.hosts.count).Should(Equal(1))
	b.hosts.mu.Lock()
	b.hosts.hold = nil
	b.hosts.mu.Unlock()
	b.change(func(lc *infrav1.LibvirtCluster) { lc.Spec.BootArtifacts.HostPath = "/srv/boot" })
	set, err := b.outcome("h0", "m0")
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(set.Kernel.Dir).To(Equal("/srv/boot"))
	b.Expect(b.hosts.on("h0")).To(And(HaveLen(2), HaveEach(HavePrefix("/srv/boot/"))))
}

func TestFailuresBecomeReasonsAndEndWhenTheirCauseDoes(t *testing.T) {
	helper := func(code hostctl.Code) func(*bench) {
		return func(b *bench) { b.hosts.answer(&hostctl.Error{Code: code, Message: string(code) + ": words"}) }
	}
	source := func(b *bench, change func(*infrav1.HTTPSBootArtifacts)) {
		b.change(func(lc *infrav1.LibvirtCluster) { change(lc.Spec.BootArtifacts.Source.HTTPS) })
	}
	for _, row := range []struct {
		name        string
		hurt        func(*bench)
		mend        func(*bench)
		reason, say string
	}{
		{"a source without the file", func(b *bench) { b.mirror.status = http.StatusNotFound }, func(b *bench) { b.mirror.status = 0 },
			infrav1.BootArtifactsFetchFailedReason, "spec.bootArtifacts.source.https.kernelURL"},
		{"another digest", func(b *bench) {
			source(b, func(s *infrav1.HTTPSBootArtifacts) { s.InitramfsSHA256 = infrav1.SHA256(digestOf([]byte("x"))) })
		}, func(b *bench) { source(b, func(s *infrav1.HTTPSBootArtifacts) { s.InitramfsSHA256 = "" }) },
			infrav1.BootArtifactsFetchFailedReason, "initramfsSHA256"},
		{"a Secret that is missing", func(b *bench) {
			source(b, func(s *infrav1.HTTPSBootArtifacts) {
				s.CredentialsSecretRef = &infrav1.CredentialsSecretReference{Name: "creds"}
			})
		}, func(b *bench) {
			b.Expect(b.client.Create(b.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "creds"},
				Data: map[string][]byte{"username": []byte("u"), "password": []byte("p")}})).To(Succeed())
		}, infrav1.SecretNotFoundReason, "Secret ns/creds of spec.bootArtifacts.source does not exist; create it"},
		{"a directory that root has not allowed", helper(hostctl.CodeNotOurs), nil, infrav1.BootArtifactsStagingFailedReason, "set spec.bootArtifacts.hostPath"},
		{"a helper that fails", helper(hostctl.CodeIO), nil, "caplv-hostctl: io: words", "words"},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, 1)
			row.hurt(b)
			_, err := b.outcome("h0", "m")
			b.Expect(reason(err)).To(Equal(row.reason), "%v", err)
			b.Expect(err.Error()).To(ContainSubstring(row.say))
			if row.mend != nil {
				row.mend(b)
			}
			b.Expect(b.outcome("h0", "m")).To(Equal(b.want()))
		})
	}
	t.Run("another transfer of the same file", func(t *testing.T) {
		b := newBench(t, 1)
		helper(hostctl.CodeBusy)(b)
		b.Eventually(func() string {
			_, err := b.stage("h0", "m")
			return err.Error()
		}, "10s", "5ms").Should(ContainSubstring("has not ended yet"))
		b.Expect(b.outcome("h0", "m")).To(Equal(b.want()))
	})
}
