// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs a management cluster's control plane as child processes: a real etcd, a real kube-apiserver
// and the real Cluster API core manager. There is no kubelet, and kube-controller-manager only where a test starts it: no Pod
// runs, unless a test brings a node, and namespaces and owned objects are not garbage collected.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Options says what Start brings up.
type Options struct {
	// Dir receives logs, certificates, etcd's data and kubeconfigs. It is created with mode 0700 when it is missing,
	// is required, and is left in place by Stop so that logs can be read afterwards.
	Dir string
	// CRDDir holds this provider's CustomResourceDefinitions: either a kustomization, which is built, or plain YAML
	// files. Empty installs none.
	CRDDir string
	// CRDs are installed in addition, for instance stand-ins for other providers.
	CRDs []*apiextensionsv1.CustomResourceDefinition
	// AddToScheme extends the client's scheme, which knows client-go's types, clusterv1 and apiextensions.
	AddToScheme []func(*runtime.Scheme) error
	// APIServerFlags are set on kube-apiserver, without leading dashes; they replace a default of the same name.
	APIServerFlags map[string][]string
	// NodesServerName is the host name at which machines reach kube-apiserver, which listens on loopback alone: whoever brings
	// the connections there has them say this name. Empty is for tests without nodes. See BootstrapKubeconfig.
	NodesServerName string
	// WithoutCoreManager leaves Cluster API's manager and webhooks out; its CRDs are installed all the same.
	WithoutCoreManager bool
}

// ControlPlane is a running control plane. Its methods may be called concurrently, except Stop.
type ControlPlane struct {
	options    Options
	env        *envtest.Environment
	config     *rest.Config
	client     client.Client
	kubectl    string
	kubeconfig string
	logs       []*os.File
	webhooks   []*envtest.WebhookInstallOptions
	processes  processList
}

// Start brings the control plane up and returns when kube-apiserver serves and Cluster API's manager is ready. When it
// fails, everything that it started is stopped again, and the error holds the end of the log of what did not start.
// The first Start on a machine builds the binaries, which takes many minutes; see hack/tools/build.sh.
func Start(ctx context.Context, options Options) (*ControlPlane, error) {
	cp := &ControlPlane{options: options}
	if err := cp.start(ctx); err != nil {
		return nil, errors.Join(err, cp.Stop())
	}
	return cp, nil
}

func (cp *ControlPlane) start(ctx context.Context) error {
	if cp.options.Dir == "" {
		return errors.New("Options.Dir is required")
	}
	dir, err := filepath.Abs(cp.options.Dir)
	if err != nil {
		return err
	}
	cp.options.Dir = dir
	for _, sub := range []string{".", "etcd", "pki", "bin"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return err
		}
	}
	scheme, err := cp.scheme()
	if err != nil {
		return err
	}
	if err := cp.startAPIServer(ctx, scheme); err != nil {
		return err
	}
	// Who wants to see the API server's warnings makes a client of RESTConfig.
	quiet := rest.CopyConfig(cp.config)
	quiet.WarningHandler = rest.NoWarnings{}
	if cp.client, err = client.New(quiet, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if err := cp.installProviderCRDs(ctx); err != nil {
		return err
	}
	if cp.options.WithoutCoreManager {
		return nil
	}
	return cp.startCoreManager(ctx)
}

func (cp *ControlPlane) scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	all := []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, apiextensionsv1.AddToScheme}
	for _, add := range append(all, cp.options.AddToScheme...) {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	return scheme, nil
}

// Client returns a client with full rights. It reads from the API server, not from a cache.
func (cp *ControlPlane) Client() client.Client { return cp.client }

// RESTConfig returns a copy of the administrator's connection, with client-side rate limits out of the way.
func (cp *ControlPlane) RESTConfig() *rest.Config { return rest.CopyConfig(cp.config) }

// Kubeconfig returns the path of the administrator's kubeconfig, a file of mode 0600.
func (cp *ControlPlane) Kubeconfig() string { return cp.kubeconfig }

// Stop ends the child processes: first what StartProcess started, the latest first, then Cluster API's manager, then
// kube-apiserver, then etcd. Whoever uses the API is gone before the API is. A second Stop does nothing.
func (cp *ControlPlane) Stop() error {
	errs := []error{cp.processes.stopAll()}
	for _, w := range cp.webhooks {
		errs = append(errs, w.Cleanup())
	}
	if cp.env != nil {
		errs = append(errs, cp.env.Stop())
	}
	for _, f := range cp.logs {
		errs = append(errs, f.Close())
	}
	cp.webhooks, cp.env, cp.logs = nil, nil, nil
	return errors.Join(errs...)
}
