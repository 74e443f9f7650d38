// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package virsh

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// localProcess runs the remote command on this machine, as the login shell of the account does on a host.
type localProcess struct {
	cmd            *exec.Cmd
	stdin          io.WriteCloser
	stdout, stderr io.Reader
}

func (p *localProcess) Stdin() io.WriteCloser { return p.stdin }
func (p *localProcess) Stdout() io.Reader     { return p.stdout }
func (p *localProcess) Stderr() io.Reader     { return p.stderr }
func (p *localProcess) Close() error          { return p.stdin.Close() }
func (p *localProcess) Wait() (int, error) {
	err := p.cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// local starts commands in this environment; starts counts them.
type local struct {
	env    []string
	starts int
}

func (l *local) start(_ context.Context, command string) (Process, error) {
	l.starts++
	cmd := exec.Command("/bin/sh", "-c", command) //nolint:noctx // The command is the package's constant.
	cmd.Env = l.env
	p := &localProcess{cmd: cmd}
	var err error
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.stdout, err = cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if p.stderr, err = cmd.StderrPipe(); err != nil {
		return nil, err
	}
	return p, cmd.Start()
}

// newLocal returns a Client over virsh's test driver, which has one domain "test" and one pool "default-pool".
func newLocal(t testing.TB) (*Shell, *local) {
	t.Helper()
	if _, err := exec.LookPath("virsh"); err != nil {
		t.Fatal("virsh is missing; install the package libvirt-clients")
	}
	l := &local{env: []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent"}}
	s := New(l.start, ModeSystem, Options{URI: "test:///default"})
	t.Cleanup(func() { _ = s.Close() })
	return s, l
}

func TestObserveBringsBackWhatExists(t *testing.T) {
	g := NewWithT(t)
	s, l := newLocal(t)
	obs, err := s.Observe(t.Context(), Query{
		Domain: "test", Pools: []string{"default-pool", "nope"},
		Volumes:  []VolumeRef{{"default-pool", "none"}, {"nope", "none"}},
		Networks: []string{"default", "lab"},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(obs.Domain).NotTo(BeNil())
	g.Expect(obs.Domain.State).To(Equal(StateRunning))
	g.Expect(obs.Domain.XML).To(HavePrefix("<domain type='test'"))
	g.Expect(strings.TrimSpace(obs.Domain.XML)).To(HaveSuffix("</domain>"))
	g.Expect(obs.Pools).To(HaveLen(1))
	g.Expect(obs.Pools["default-pool"].Active).To(BeTrue())
	g.Expect(obs.Pools["default-pool"].XML).To(HavePrefix("<pool type='dir'"))
	g.Expect(obs.Volumes).To(BeEmpty())
	g.Expect(obs.Networks).To(Equal(map[string]bool{"default": true}))

	obs, err = s.Observe(t.Context(), Query{Domain: "no-such-domain"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(obs.Domain).To(BeNil())
	g.Expect(l.starts).To(Equal(1), "one process serves all operations")
}

func TestAMachineWithTheLongestNamesIsObserved(t *testing.T) {
	// virsh's readline scrolls an input line that is wider than its terminal.
	g := NewWithT(t)
	s, _ := newLocal(t)
	long := strings.Repeat("x", 128)
	obs, err := s.Observe(t.Context(), Query{Domain: long, Pools: []string{"default-pool", long}, Volumes: []VolumeRef{{"default-pool", long}}})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(obs.Domain).To(BeNil())
	g.Expect(obs.Pools).To(HaveKey("default-pool"))
}

const (
	domainXML = `<domain type='test'><name>m1</name><memory unit='MiB'>64</memory><vcpu>1</vcpu><os><type>hvm</type></os></domain>`
	poolXML   = `<pool type='dir'><name>p1</name><target><path>/run/p1</path></target></pool>`
	volumeXML = `<volume><name>v1.qcow2</name><capacity unit='bytes'>1048576</capacity><target><format type='qcow2'/></target></volume>`
)

func TestALifeOfADomainItsPoolAndVolume(t *testing.T) {
	g := NewWithT(t)
	s, _ := newLocal(t)
	ctx := t.Context()
	ref := VolumeRef{"p1", "v1.qcow2"}
	observe := func() Observation {
		obs, err := s.Observe(ctx, Query{Domain: "m1", Pools: []string{"p1"}, Volumes: []VolumeRef{ref}})
		g.Expect(err).NotTo(HaveOccurred())
		return obs
	}
	g.Expect(s.DefineDomain(ctx, domainXML)).To(Succeed())
	g.Expect(observe().Domain.State).To(Equal(StateShutOff))
	g.Expect(s.DefinePool(ctx, poolXML)).To(Succeed())
	g.Expect(observe().Pools["p1"].Active).To(BeFalse())
	g.Expect(s.StartPool(ctx, "p1")).To(Succeed())
	g.Expect(s.StartPool(ctx, "p1")).To(Or(Succeed(), MatchError(ContainSubstring("not valid"))))
	g.Expect(s.CreateVolume(ctx, "p1", volumeXML)).To(Succeed())
	g.Expect(observe().Volumes[ref]).To(ContainSubstring("<name>v1.qcow2</name>"))
	// The test driver's words for it are its own.
	g.Expect(s.CreateVolume(ctx, "p1", volumeXML)).To(MatchError(ContainSubstring("already exists")))
	g.Expect(s.StartDomain(ctx, "m1")).To(Succeed())
	g.Expect(s.StartDomain(ctx, "m1")).To(Succeed(), "a domain that runs already")
	g.Expect(observe().Domain.State.Running()).To(BeTrue())
	g.Expect(ReasonOf(s.StartDomain(ctx, "m2"))).To(Equal(DomainNotFound))

	g.Expect(s.DestroyDomain(ctx, "m1")).To(Succeed())
	g.Expect(s.DeleteVolume(ctx, "p1", "v1.qcow2")).To(Succeed())
	g.Expect(s.DeleteVolume(ctx, "p1", "v1.qcow2")).To(Succeed(), "a volume that is gone already")
	g.Expect(s.DestroyPool(ctx, "p1")).To(Succeed())
	g.Expect(s.UndefinePool(ctx, "p1")).To(Succeed())
	g.Expect(s.UndefinePool(ctx, "p1")).To(Succeed(), "a pool that is gone already")
	// The test driver knows none of the flags of undefine; the end-to-end tests have a driver that does.
	g.Expect(s.UndefineDomain(ctx, "m1")).To(MatchError(ContainSubstring("unsupported flags")))
	g.Expect(s.UndefineDomain(ctx, "m2")).To(Succeed(), "a domain that is gone already")
}

func TestADefinitionThatIsNoXMLIsAnError(t *testing.T) {
	g := NewWithT(t)
	s, _ := newLocal(t)
	g.Expect(ReasonOf(s.DefineDomain(t.Context(), "<domain><name>x"))).To(Equal(InvalidDefinition))
	g.Expect(s.DefineDomain(t.Context(), domainXML)).To(Succeed(), "the process goes on after an error")
}

func TestWithoutVirshTheErrorSaysSo(t *testing.T) {
	g := NewWithT(t)
	bin := t.TempDir()
	g.Expect(os.Symlink("/bin/sh", bin+"/sh")).To(Succeed())
	l := &local{env: []string{"PATH=" + bin}}
	s := New(l.start, ModeSystem, Options{})
	_, err := s.Observe(t.Context(), Query{Domain: "m1"})
	g.Expect(ReasonOf(err)).To(Equal(VirshMissing), "%v", err)
}

func TestADaemonThatIsNotThereIsUnavailable(t *testing.T) {
	g := NewWithT(t)
	l := &local{env: []string{"PATH=/usr/bin:/bin"}}
	s := New(l.start, ModeSystem, Options{URI: "qemu+unix:///system?socket=/nowhere/libvirt-sock"})
	_, err := s.Observe(t.Context(), Query{Domain: "m1"})
	g.Expect(ReasonOf(err)).To(Equal(LibvirtUnavailable), "%v", err)
	g.Expect(err.Error()).To(ContainSubstring("failed to connect to the hypervisor"))
}

func TestTheProcessEndsWhenThereIsNoWork(t *testing.T) {
	g := NewWithT(t)
	l := &local{env: []string{"PATH=/usr/bin:/bin"}}
	s := New(l.start, ModeSystem, Options{URI: "test:///default", IdleTimeout: 50 * time.Millisecond})
	for range 2 {
		_, err := s.Observe(t.Context(), Query{Domain: "test"})
		g.Expect(err).NotTo(HaveOccurred())
		g.Eventually(func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.process == nil }, 5*time.Second).Should(BeTrue())
	}
	g.Expect(l.starts).To(Equal(2))
}

func TestAProcessThatDiedMeanwhileIsReplaced(t *testing.T) {
	g := NewWithT(t)
	s, l := newLocal(t)
	_, err := s.Observe(t.Context(), Query{Domain: "test"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.process.remote.Stdin().Close()).To(Succeed())
	_, err = s.Observe(t.Context(), Query{Domain: "test"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(l.starts).To(Equal(2))
}

func TestAContextEndsTheWait(t *testing.T) {
	g := NewWithT(t)
	silent := func(context.Context, string) (Process, error) {
		r, w := io.Pipe()
		return &localProcess{stdin: w, stdout: r, stderr: strings.NewReader("")}, nil
	}
	s := New(silent, ModeSystem, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Observe(ctx, Query{Domain: "m1"})
	g.Expect(err).To(MatchError(context.DeadlineExceeded))
}

// BenchmarkObserve prints how much longer an observation takes with a new virsh for each than with a long-lived one.
func BenchmarkObserve(b *testing.B) {
	s, _ := newLocal(b)
	observe := func() {
		if _, err := s.Observe(b.Context(), Query{Domain: "test", Pools: []string{"default-pool"}}); err != nil {
			b.Fatal(err)
		}
	}
	observe()
	start := time.Now()
	for range 10 {
		_ = s.Close()
		observe()
	}
	fresh := time.Since(start) / 10
	b.ResetTimer()
	for b.Loop() {
		observe()
	}
	kept := b.Elapsed() / time.Duration(b.N)
	b.ReportMetric(float64(fresh)/float64(kept), "new/kept")
}
