// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Command manager is the operator: it reconciles LibvirtHosts, LibvirtClusters and LibvirtMachines.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/artifact"
	"github.com/caplv/caplv/operator/controller/cluster"
	"github.com/caplv/caplv/operator/controller/csr"
	"github.com/caplv/caplv/operator/controller/host"
	"github.com/caplv/caplv/operator/controller/index"
	"github.com/caplv/caplv/operator/controller/machine"
	"github.com/caplv/caplv/operator/controller/node"
	"github.com/caplv/caplv/operator/hostconn"
	"github.com/caplv/caplv/operator/hostevents"
	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/job"
	"github.com/caplv/caplv/operator/logging"
	"github.com/caplv/caplv/operator/version"
	"github.com/caplv/caplv/operator/webhook"
)

func main() {
	o := &options{}
	o.addFlags(pflag.CommandLine)
	pflag.Parse()
	if o.showVersion {
		fmt.Println(version.String())
		return
	}
	log, flush, err := logging.New(o.logLevel, o.logFormat)
	if err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(2)
	}
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	err = run(ctrl.SetupSignalHandler(), o)
	if err != nil {
		log.Error(err, "Manager ended with an error")
	}
	flush()
	if err != nil {
		os.Exit(1)
	}
}

// run starts the manager and returns when ctx ends.
func run(ctx context.Context, o *options) error {
	managerOptions, err := o.managerOptions()
	if err != nil {
		return err
	}
	config, err := o.restConfig()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(config, managerOptions)
	if err != nil {
		return fmt.Errorf("creating the manager: %w", err)
	}
	conns := hostconn.NewPool(hostconn.Options{})
	defer func() { _ = conns.Close() }()
	metrics.RegisterRESTClientMetrics(metrics.MetricRequestLatency)
	for _, register := range []func(prometheus.Registerer) error{hostconn.Register, machine.RegisterMetrics, csr.RegisterMetrics, artifact.Register, hostevents.RegisterMetrics} {
		if err := register(metrics.Registry); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	if err := setup(ctx, mgr, o, hosts.NewPool(mgr.GetAPIReader(), conns)); err != nil {
		return err
	}
	mgr.GetLogger().Info("Starting manager", "version", version.String())
	return mgr.Start(ctx)
}

// setup registers indexes, reconcilers and probes.
func setup(ctx context.Context, mgr ctrl.Manager, o *options, connector hosts.Connector) error {
	if err := index.Add(ctx, mgr); err != nil {
		return fmt.Errorf("adding indexes: %w", err)
	}
	runners, jobs := o.runners(mgr.GetAPIReader()), job.New(ctx)
	images, boot, err := o.stagers(mgr, runners, jobs, connector)
	if err != nil {
		return err
	}
	concurrency := controller.Options{MaxConcurrentReconciles: o.concurrency}
	if err := (&host.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Hosts: connector, Recorder: mgr.GetEventRecorder("libvirthost"),
		RequireFingerprint: o.requireFingerprint, WatchFilterValue: o.watchFilter, Runners: runners, Jobs: job.New(ctx),
		BootArtifacts: boot,
	}).SetupWithManager(mgr, concurrency); err != nil {
		return fmt.Errorf("setting up the LibvirtHost reconciler: %w", err)
	}
	if err := (&cluster.Reconciler{
		Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder("libvirtcluster"), WatchFilterValue: o.watchFilter,
	}).SetupWithManager(ctx, mgr, concurrency); err != nil {
		return fmt.Errorf("setting up the LibvirtCluster reconciler: %w", err)
	}
	if err := (&machine.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Hosts: connector, Jobs: jobs, Images: images, BootArtifacts: boot,
		Events: hostEvents(ctx, mgr, connector), Recorder: mgr.GetEventRecorder("libvirtmachine"), WatchFilterValue: o.watchFilter, FailPoint: failPoint(),
	}).SetupWithManager(ctx, mgr, concurrency); err != nil {
		return fmt.Errorf("setting up the LibvirtMachine reconciler: %w", err)
	}
	if err := setupNodes(ctx, mgr, o, concurrency); err != nil {
		return err
	}
	if err := setupControlPlane(ctx, mgr, o, concurrency); err != nil {
		return err
	}
	if err := setupRemediation(ctx, mgr, o, concurrency); err != nil {
		return err
	}
	if err := setupWebhooks(mgr, o); err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	return mgr.AddReadyzCheck("ping", healthz.Ping)
}

// hostEvents reads what happens on hosts with machines.
func hostEvents(ctx context.Context, mgr ctrl.Manager, connector hosts.Connector) *hostevents.Watcher {
	return hostevents.New(ctx, func(ctx context.Context, lh *infrav1.LibvirtHost) (hostevents.Stream, error) {
		return hosts.Events(ctx, connector, lh)
	}, mgr.GetLogger().WithName("hostevents"), hostevents.Options{})
}

// setupNodes registers the reconcilers that let a machine's kubelet join and look after its Node.
func setupNodes(ctx context.Context, mgr ctrl.Manager, o *options, concurrency controller.Options) error {
	if err := (&node.Reconciler{
		Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder("node"), WatchFilterValue: o.watchFilter,
	}).SetupWithManager(ctx, mgr, concurrency); err != nil {
		return fmt.Errorf("setting up the Node reconciler: %w", err)
	}
	if o.csrApprover == csrApproverOff {
		mgr.GetLogger().Info("Leaving certificates of kubelets to somebody else, because --csr-approver is off")
		return nil
	}
	if err := (&csr.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("csr-approver"),
		APIServer: mgr.GetConfig().Host, WatchFilterValue: o.watchFilter,
	}).SetupWithManager(ctx, mgr, concurrency); err != nil {
		return fmt.Errorf("setting up the CSR approver: %w", err)
	}
	return nil
}

// setupWebhooks registers the admission webhooks, unless they are off. The manager is ready when they answer.
func setupWebhooks(mgr ctrl.Manager, o *options) error {
	if o.webhookPort == 0 {
		mgr.GetLogger().Info("Running without admission webhooks, because --webhook-port is 0")
		return nil
	}
	if err := webhook.SetupWithManager(mgr); err != nil {
		return err
	}
	return mgr.AddReadyzCheck("webhooks", mgr.GetWebhookServer().StartedChecker())
}
