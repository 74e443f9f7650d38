// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// coreManagerTimeout bounds the wait for Cluster API's manager to be ready.
const coreManagerTimeout = 3 * time.Minute

// pointToCoreManager makes envtest install Cluster API's webhook configurations, and direct them and the conversion of
// its CRDs to a local port, where startCoreManager then serves.
func (cp *ControlPlane) pointToCoreManager(manifest string) error {
	content, err := os.ReadFile(manifest)
	if err != nil {
		return err
	}
	hooks, err := decodeWebhooks(content)
	if err != nil {
		return fmt.Errorf("%s: %w", manifest, err)
	}
	// The files carry controller-gen's default names, which every provider has; Cluster API's own kustomization adds
	// the same prefix.
	for _, h := range hooks.MutatingWebhooks {
		h.Name = "capi-" + h.Name
	}
	for _, h := range hooks.ValidatingWebhooks {
		h.Name = "capi-" + h.Name
	}
	cp.env.WebhookInstallOptions = envtest.WebhookInstallOptions{
		MutatingWebhooks:        hooks.MutatingWebhooks,
		ValidatingWebhooks:      hooks.ValidatingWebhooks,
		IgnoreSchemeConvertible: true,
	}
	return nil
}

// startCoreManager starts Cluster API's core manager and waits until its webhooks and controllers are ready.
func (cp *ControlPlane) startCoreManager(ctx context.Context) error {
	binary, err := toolPath(ctx, "capi-core")
	if err != nil {
		return err
	}
	health, err := freeAddress()
	if err != nil {
		return err
	}
	hooks := cp.env.WebhookInstallOptions
	p, err := cp.StartProcess("capi-core", binary, nil,
		"--kubeconfig="+cp.kubeconfig,
		"--leader-elect=false",
		fmt.Sprintf("--webhook-port=%d", hooks.LocalServingPort),
		"--webhook-cert-dir="+hooks.LocalServingCertDir,
		"--health-addr="+health,
		"--diagnostics-address=127.0.0.1:0",
		"--insecure-diagnostics",
		"--feature-gates=ClusterTopology=true",
		"--v=2",
	)
	if err != nil {
		return err
	}
	if err := p.WaitReady(ctx, "http://"+health+"/readyz", coreManagerTimeout); err != nil {
		return fmt.Errorf("%w\n%s", err, cp.logTail("capi-core"))
	}
	return nil
}

// WaitReady waits until url answers with status 200. It returns an error when the process ends first, when ctx ends, or
// after timeout.
func (p *Process) WaitReady(ctx context.Context, url string, timeout time.Duration) error {
	probe := &http.Client{Timeout: 5 * time.Second}
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		select {
		case <-p.done:
			return false, fmt.Errorf("%s ended before it was ready: %w", p.Name, p.err)
		default:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return false, err
		}
		resp, err := probe.Do(req)
		if err != nil {
			last = err
			return false, nil //nolint:nilerr // Not listening yet is what is waited for.
		}
		last = fmt.Errorf("status %s", resp.Status)
		return resp.StatusCode == http.StatusOK, resp.Body.Close()
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("%s was not ready after %s: %w", p.Name, timeout, last)
	}
	return err
}

// installProviderCRDs installs the CRDs of Options. They convert nothing, unlike Cluster API's own.
func (cp *ControlPlane) installProviderCRDs(ctx context.Context) error {
	install := envtest.CRDInstallOptions{Scheme: cp.env.Scheme, CRDs: cp.options.CRDs, ErrorIfPathMissing: true}
	if dir := cp.options.CRDDir; dir != "" {
		if _, err := os.Stat(filepath.Join(dir, "kustomization.yaml")); err == nil {
			built, err := cp.KustomizeBuild(ctx, dir)
			if err != nil {
				return err
			}
			if err := cp.Apply(ctx, built); err != nil {
				return fmt.Errorf("installing the CRDs of %s: %w", dir, err)
			}
		} else {
			install.Paths = []string{dir}
		}
	}
	if _, err := envtest.InstallCRDs(cp.config, install); err != nil {
		return fmt.Errorf("installing CRDs: %w", err)
	}
	return nil
}

// freeAddress returns a loopback address with a port that nothing listened on a moment ago.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
