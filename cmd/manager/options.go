// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/flags"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	controlplanev1 "github.com/caplv/caplv/api/controlplane/v1alpha1"
	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/controller/node"
	"github.com/caplv/caplv/operator/version"
	admission "github.com/caplv/caplv/operator/webhook"
)

// The values of --csr-approver.
const (
	csrApproverOn  = "on"
	csrApproverOff = "off"
)

const leaderElectionID = "caplv-manager.infrastructure.cluster.x-k8s.io"

// options are the flags of the manager.
type options struct {
	kubeconfig         string
	kubeAPIQPS         float32
	kubeAPIBurst       int
	leaderElect        bool
	leaderNamespace    string
	concurrency        int
	namespace          string
	watchFilter        string
	healthAddress      string
	requireFingerprint bool
	runnerSocket       string
	imageCacheDir      string
	imageCacheSize     resource.QuantityValue
	csrApprover        string
	clusterAPIAccount  string
	webhookPort        int
	webhookCertDir     string
	logLevel           string
	logFormat          string
	showVersion        bool
	manager            flags.ManagerOptions
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "Path of a kubeconfig. Empty: the service account of the pod, or $KUBECONFIG.")
	fs.Float32Var(&o.kubeAPIQPS, "kube-api-qps", 100, "Requests a second to the API server.")
	fs.IntVar(&o.kubeAPIBurst, "kube-api-burst", 200, "Requests to the API server that may exceed the rate at once.")
	fs.BoolVar(&o.leaderElect, "leader-elect", false, "Elect a leader, so that only one of several managers is active.")
	fs.StringVar(&o.leaderNamespace, "leader-elect-namespace", "", "Namespace of the leader's Lease. Empty: the pod's namespace.")
	fs.IntVar(&o.concurrency, "max-concurrent-reconciles", 50, "Objects of one kind that are reconciled at once.")
	fs.StringVar(&o.namespace, "namespace", "", "Namespace to watch. Empty: all namespaces.")
	fs.StringVar(&o.watchFilter, "watch-filter", "", fmt.Sprintf("Reconcile only objects whose label %s has this value. Empty: all objects.", clusterv1.WatchLabel))
	fs.StringVar(&o.healthAddress, "health-addr", ":9440", "Address of the health and readiness probes.")
	fs.BoolVar(&o.requireFingerprint, "require-host-key-fingerprint", false, "Refuse LibvirtHosts without spec.hostKeyFingerprint instead of recording the first key seen.")
	fs.StringVar(&o.runnerSocket, "ansible-runner-socket", "/run/caplv-ansible/runner.sock",
		"Unix socket of the Ansible sidecar, which sets hosts up. Empty: there is none, and spec.bootstrap of LibvirtHosts needs AWX.")
	fs.StringVar(&o.imageCacheDir, "base-image-cache-dir", "/var/cache/caplv/baseimages",
		"Directory for base images and boot artifacts that are sent to hosts. The Ansible sidecar must see it under the same path.")
	o.imageCacheSize.Quantity = resource.MustParse("60Gi")
	fs.Var(&o.imageCacheSize, "base-image-cache-size",
		"Bytes that the directory may have, such as 60Gi, less than its volume. When there is no more room, what no LibvirtCluster refers to goes first.")
	fs.StringVar(&o.csrApprover, "csr-approver", csrApproverOn, "Approve certificates of the machines' kubelets: on, or off to leave that to somebody else.")
	fs.StringVar(&o.clusterAPIAccount, "cluster-api-service-account", "caplv-system/caplv-cluster-api",
		"Service account, NAMESPACE/NAME, whose tokens Cluster API is given for Clusters with a LibvirtExternalControlPlane.")
	fs.IntVar(&o.webhookPort, "webhook-port", 9443, "Port of the admission webhooks. 0: run without them.")
	fs.StringVar(&o.webhookCertDir, "webhook-cert-dir", "/tmp/k8s-webhook-server/serving-certs",
		"Directory with the certificate of the admission webhooks, tls.crt and tls.key, which are read again when they change.")
	fs.StringVar(&o.logLevel, "log-level", "info", "Least severe level that is logged: debug, info, warn or error.")
	fs.StringVar(&o.logFormat, "log-format", "json", "Format of the log: json or console.")
	fs.BoolVar(&o.showVersion, "version", false, "Print the version and exit.")
	flags.AddManagerOptions(fs, &o.manager)
}

// restConfig is how the API server is reached.
func (o *options) restConfig() (*rest.Config, error) {
	var config *rest.Config
	var err error
	if o.kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	} else {
		config, err = ctrl.GetConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("finding the API server (--kubeconfig, pod or $KUBECONFIG): %w", err)
	}
	config.QPS, config.Burst = o.kubeAPIQPS, o.kubeAPIBurst
	config.UserAgent = "caplv-manager/" + version.String()
	return config, nil
}

func (o *options) managerOptions() (ctrl.Options, error) {
	if o.concurrency < 1 {
		return ctrl.Options{}, fmt.Errorf("--max-concurrent-reconciles is %d; it must be at least 1", o.concurrency)
	}
	if o.csrApprover != csrApproverOn && o.csrApprover != csrApproverOff {
		return ctrl.Options{}, fmt.Errorf("--csr-approver is %q; it must be %s or %s", o.csrApprover, csrApproverOn, csrApproverOff)
	}
	tlsOptions, metricsOptions, err := flags.GetManagerOptions(o.manager)
	if err != nil {
		return ctrl.Options{}, err
	}
	webhookServer, err := o.webhookServer(tlsOptions)
	if err != nil {
		return ctrl.Options{}, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, infrav1.AddToScheme, controlplanev1.AddToScheme} {
		if err := add(scheme); err != nil {
			return ctrl.Options{}, err
		}
	}
	resync := 10 * time.Hour
	managed := ctrl.Options{
		Scheme:                        scheme,
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              leaderElectionID,
		LeaderElectionNamespace:       o.leaderNamespace,
		LeaderElectionReleaseOnCancel: true,
		HealthProbeBindAddress:        o.healthAddress,
		Metrics:                       *metricsOptions,
		WebhookServer:                 webhookServer,
		Cache: cache.Options{SyncPeriod: &resync, ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}: {Transform: node.Slim},
		}},
		// Secrets are read when they are needed, so that the operator neither lists them nor keeps them in memory.
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
	}
	if o.namespace != "" {
		managed.Cache.DefaultNamespaces = map[string]cache.Config{o.namespace: {}}
	}
	return managed, nil
}

// webhookServer is the server of the admission webhooks; nil when they are off.
func (o *options) webhookServer(tlsOptions []func(*tls.Config)) (webhook.Server, error) {
	switch {
	case o.webhookPort == 0:
		return nil, nil
	case o.webhookPort < 0 || o.webhookPort > 65535:
		return nil, fmt.Errorf("--webhook-port is %d; it must be a port, or 0 to run without admission webhooks", o.webhookPort)
	}
	if err := admission.CheckCertificate(o.webhookCertDir); err != nil {
		return nil, fmt.Errorf("--webhook-cert-dir: %w; put tls.crt and tls.key there, or run without admission webhooks with --webhook-port=0", err)
	}
	return webhook.NewServer(webhook.Options{Port: o.webhookPort, CertDir: o.webhookCertDir, TLSOpts: tlsOptions}), nil
}
