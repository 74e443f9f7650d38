// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/test/bench/controlplane"
	"github.com/caplv/caplv/test/bench/host"
	"github.com/caplv/caplv/test/bench/operator"
)

const (
	hostName    = "demo"
	machineName = "worker01"
	bootTime    = 10 * time.Minute
	setupTime   = 20 * time.Minute
)

// supervisor holds what runs.
type supervisor struct {
	*demo
	progress *os.File
	cp       *controlplane.ControlPlane
	operator *operator.Operator
	hosts    *host.Bench
	host     *host.Host
	sidecar  *operator.Sidecar
	image    *servedImage
}

// supervise brings everything up, keeps it until it is told to end, and takes it down.
func (d *demo) supervise(ctx context.Context) error {
	progress, err := os.Create(d.path("progress"))
	if err != nil {
		return err
	}
	s := &supervisor{demo: d, progress: progress}
	defer s.tearDown()
	if err := s.bringUp(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		s.say("  %v", err)
		s.say(wordFailed)
		return err
	}
	s.say(wordReady)
	<-ctx.Done()
	return nil
}

func (s *supervisor) say(format string, args ...any) {
	_, _ = fmt.Fprintf(s.progress, format+"\n", args...)
}

// step announces a step and how long it took.
func (s *supervisor) step(what string, do func() error) error {
	s.say("• %s …", what)
	start := time.Now()
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	s.say("  done in %.1f s", time.Since(start).Seconds())
	return nil
}

func (s *supervisor) bringUp(ctx context.Context) error {
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"Starting etcd, kube-apiserver and Cluster API", func() (err error) {
			s.cp, err = controlplane.Start(ctx, controlplane.Options{
				Dir: s.path("controlplane"), CRDDir: filepath.Join(s.repository, "operator", "config", "crd"),
				AddToScheme: []func(*runtime.Scheme) error{infrav1.AddToScheme},
			})
			return err
		}},
		{"Building and starting the operator, under its shipped roles, and its Ansible sidecar", func() (err error) {
			options := operator.Options{Repository: s.repository, Dir: s.dir}
			if s.sidecar, err = operator.NewSidecar(ctx, s.cp, options); err != nil {
				return err
			}
			if err := s.sidecar.Start(ctx); err != nil {
				return err
			}
			options.RunnerSocket = s.sidecar.Socket()
			if s.operator, err = operator.New(ctx, s.cp, options); err != nil {
				return err
			}
			return s.operator.Start(ctx)
		}},
		{"Building the guest's image, and serving it over HTTPS", func() (err error) {
			s.image, err = serveImage(ctx, s.repository)
			return err
		}},
		{"Bringing up a bare Debian host (systemd and sshd) in namespaces of its own (the first time, its file system is built, which takes some minutes)", func() (err error) {
			if s.hosts, err = host.New(s.repository, s.path("hosts")); err != nil {
				return err
			}
			s.host, err = s.hosts.UpBare(ctx, hostName, "debian12")
			return err
		}},
		{"Applying operator/config/samples, adapted to this machine", func() error { return s.applySamples(ctx) }},
		{"Waiting until the operator has set the host up", func() error { return s.waitForHost(ctx) }},
		{"Waiting for machine " + machineName, func() error { return s.waitForMachine(ctx) }},
		{"Waiting for its guest to report (it is emulated, which takes a while)", func() error { return s.waitForGuest(ctx) }},
	} {
		if err := s.step(step.what, step.do); err != nil {
			return err
		}
	}
	return s.show(ctx)
}

// waitForHost waits until the operator has set the host up, and tells how far it is.
func (s *supervisor) waitForHost(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, setupTime)
	defer cancel()
	return s.watch(ctx, time.Second, func() (conditions.Getter, error) {
		lh := &infrav1.LibvirtHost{}
		return lh, s.cp.Client().Get(ctx, client.ObjectKey{Namespace: "default", Name: bareHost}, lh)
	})
}

// waitForMachine waits until the machine runs and tells each state on the way.
func (s *supervisor) waitForMachine(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	return s.watch(ctx, 200*time.Millisecond, func() (conditions.Getter, error) {
		lm := &infrav1.LibvirtMachine{}
		return lm, s.cp.Client().Get(ctx, client.ObjectKey{Namespace: "default", Name: machineName}, lm)
	})
}

// watch says what the condition Ready of an object says, whenever that changes, until it is True.
func (s *supervisor) watch(ctx context.Context, pause time.Duration, get func() (conditions.Getter, error)) error {
	last := ""
	for {
		object, err := get()
		if err != nil {
			return err
		}
		// Both kinds have it under the same name.
		if ready := conditions.Get(object, infrav1.HostReadyCondition); ready != nil {
			if state := ready.Reason + ": " + ready.Message; state != last {
				s.say("  %s", state)
				last = state
			}
			if conditions.IsTrue(object, infrav1.HostReadyCondition) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it is still not ready: %s", last)
		case <-time.After(pause):
		}
	}
}

// waitForGuest waits until the guest has said on its serial console what it received.
func (s *supervisor) waitForGuest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	for {
		if text, err := s.serialLog(ctx); err == nil && strings.Contains(text, "CAPLV-GUEST DONE") {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no report on the serial console within %s", bootTime)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func (s *supervisor) serialLog(ctx context.Context) (string, error) {
	return s.host.Exec(ctx, "cat", "/run/caplv/default-my-cluster-"+machineName+"/serial.log")
}

// show ends the progress with what a user would look at next.
func (s *supervisor) show(ctx context.Context) error {
	out, err := s.cp.Kubectl(ctx, "get", "clusters,libvirtclusters,libvirthosts,machines,libvirtmachines")
	if err != nil {
		return err
	}
	s.say("\n$ kubectl get clusters,libvirtclusters,libvirthosts,machines,libvirtmachines\n%s", out)
	serial, err := s.serialLog(ctx)
	if err != nil {
		return err
	}
	s.say("What the guest reports on its serial console (FWCFG is the Ignition config that it received):")
	for line := range strings.SplitSeq(serial, "\n") {
		if _, report, ok := strings.Cut(strings.TrimSpace(line), "CAPLV-GUEST "); ok {
			s.say("  %s", report)
		}
	}
	kubectl := filepath.Join(s.repository, "bin", "kubectl")
	if _, err := os.Stat(kubectl); err != nil {
		kubectl = "kubectl"
	}
	s.say(`
Look around:
  export KUBECONFIG=%s
  %s get lvm -o wide                 # the machine; lvh: the host
  %s describe lvm %s           # its conditions and events
  CAPLV_BENCH_DIR=%s test/bench/host.sh exec %s runuser -u caplv -- sh -c 'XDG_RUNTIME_DIR=/run/user/$(id -u) virsh -c qemu:///session list'
  less %s                 # the operator's log
  ls %s                   # what the runs of playbooks have said
  %s delete machine %s         # and watch everything leave the host
End it with: make demo-down`,
		s.cp.Kubeconfig(), kubectl, kubectl, machineName, s.path("hosts"), hostName, s.operator.LogPath(), s.sidecar.ArtifactsDir(), kubectl, machineName)
	return nil
}

// tearDown stops everything that runs.
func (s *supervisor) tearDown() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if s.image != nil {
		s.image.server.Close()
	}
	if s.cp != nil {
		// The operator is one of its processes.
		if err := s.cp.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "demo: stopping the control plane:", err)
		}
	}
	if s.hosts != nil {
		if err := s.hosts.DownAll(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "demo: taking the host down:", err)
		}
	}
}
