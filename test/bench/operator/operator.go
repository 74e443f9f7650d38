// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operator runs the manager of this repository against a control plane of package controlplane, as the service
// account and under the roles that operator/config ships.
package operator

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/caplv/caplv/test/bench/controlplane"
)

const (
	// Namespace is where operator/config/default puts the operator.
	Namespace = "caplv-system"
	account   = "caplv-manager"
	readyTime = 60 * time.Second
)

// Options say how the manager is run.
type Options struct {
	// Repository is the root of this repository.
	Repository string
	// Dir receives the binary.
	Dir string
	// Flags are added to those that the bench needs.
	Flags []string
	// RunnerSocket is Sidecar.Socket, or empty for an operator that runs no playbooks.
	RunnerSocket string
	// FailPoints builds the manager with its fail points, which Start's environment arms.
	FailPoints bool
}

// Operator is the manager, running or killed.
type Operator struct {
	cp         *controlplane.ControlPlane
	options    Options
	binary     string
	kubeconfig string
	name       string
	process    *controlplane.Process
	metrics    string
	webhooks   *controlplane.WebhookServer
	starts     atomic.Int32
}

// New builds the manager and installs what operator/config/default says. The Deployment stays without Pods, as there is
// no kubelet; the webhooks are directed to this machine, with a certificate of the bench instead of cert-manager's. The
// CRDs are expected to be there. From then on the API server asks the manager, so Start should follow soon.
func New(ctx context.Context, cp *controlplane.ControlPlane, options Options) (*Operator, error) {
	o := &Operator{cp: cp, options: options, name: "manager", binary: filepath.Join(options.Dir, "manager")}
	args := []string{"build", "-o", o.binary}
	if options.FailPoints {
		args = append(args, "-tags=failpoints")
	}
	build := exec.CommandContext(ctx, "go", append(args, "./cmd/manager")...)
	build.Dir = options.Repository
	build.Stderr = os.Stderr
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("building the manager: %w", err)
	}
	manifests, err := cp.KustomizeBuild(ctx, filepath.Join(options.Repository, "operator", "config", "default"))
	if err != nil {
		return nil, err
	}
	if err := o.install(ctx, manifests); err != nil {
		return nil, fmt.Errorf("installing operator/config/default: %w", err)
	}
	if o.kubeconfig, err = cp.ServiceAccountKubeconfig(ctx, Namespace, account); err != nil {
		return nil, err
	}
	return o, nil
}

// install applies the manifests. The webhooks come last, when everything that they do not concern is there.
func (o *Operator) install(ctx context.Context, manifests []byte) error {
	others, err := controlplane.Except(manifests, "ValidatingWebhookConfiguration", "Issuer", "Certificate")
	if err != nil {
		return err
	}
	if err := o.cp.Apply(ctx, others); err != nil {
		return err
	}
	o.webhooks, err = o.cp.InstallWebhooks(ctx, manifests)
	return err
}

// Another returns a second operator of the same build, with the same account, that has not been started. It serves no
// webhooks: the API server asks the first one.
func (o *Operator) Another() *Operator {
	return &Operator{
		cp: o.cp, options: o.options, name: o.name + "-another", binary: o.binary, kubeconfig: o.kubeconfig, webhooks: &controlplane.WebhookServer{},
	}
}

// Start starts the manager, with NAME=VALUE pairs added to its environment, and waits until it is ready.
func (o *Operator) Start(ctx context.Context, env ...string) error {
	health, err := freeAddress()
	if err != nil {
		return err
	}
	if o.metrics, err = freeAddress(); err != nil {
		return err
	}
	flags := append([]string{
		"--kubeconfig=" + o.kubeconfig, "--health-addr=" + health, "--diagnostics-address=" + o.metrics,
		"--leader-elect=false", "--log-level=info",
		// One that is running has it for itself.
		"--base-image-cache-dir=" + filepath.Join(o.options.Dir, o.name+"-images"), "--ansible-runner-socket=" + o.options.RunnerSocket,
		fmt.Sprintf("--webhook-port=%d", o.webhooks.Port), "--webhook-cert-dir=" + o.webhooks.CertDir,
	}, o.options.Flags...)
	name := fmt.Sprintf("%s-%d", o.name, o.starts.Add(1))
	if o.process, err = o.cp.StartProcess(name, o.binary, env, flags...); err != nil {
		return err
	}
	deadline := time.Now().Add(readyTime)
	for time.Now().Before(deadline) {
		select {
		case <-o.process.Done():
			return fmt.Errorf("the manager ended; see %s", o.process.LogPath)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		response, err := http.Get("http://" + health + "/readyz") //nolint:noctx // Bounded by the loop.
		if err != nil {
			continue
		}
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return nil
		}
	}
	return fmt.Errorf("the manager was not ready within %s; see %s", readyTime, o.process.LogPath)
}

// Done is closed when the manager that was started last has ended.
func (o *Operator) Done() <-chan struct{} { return o.process.Done() }

// Kill ends the manager with SIGKILL.
func (o *Operator) Kill() { o.process.Kill() }

// Stop ends the manager as a Pod's end would.
func (o *Operator) Stop() error { return o.process.Stop() }

// LogPath is the log of the manager that was started last.
func (o *Operator) LogPath() string { return o.process.LogPath }

// MetricsAddress is HOST:PORT of the metrics of the manager that was started last.
func (o *Operator) MetricsAddress() string { return o.metrics }

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}
