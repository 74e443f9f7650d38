// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/ansible/sidecar"
	"github.com/caplv/caplv/operator/baseimage"
	"github.com/caplv/caplv/operator/bootartifact"
	"github.com/caplv/caplv/operator/hostrunner"
	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/job"
)

// runners are those who can run playbooks. Secrets are read with a reader that does not cache.
func (o *options) runners(secrets client.Reader) *hostrunner.Runners {
	r := &hostrunner.Runners{
		Secrets: secrets, RequireFingerprint: o.requireFingerprint,
		Backends: map[infrav1.BootstrapBackend]hostrunner.BackendFunc{infrav1.BackendAWX: hostrunner.NewAWX(secrets, time.Now).Backend},
	}
	if o.runnerSocket != "" {
		client := sidecar.New(o.runnerSocket)
		r.Backends[infrav1.BackendSidecar] = func(context.Context, *infrav1.LibvirtHost) (ansible.Backend, error) { return client, nil }
	}
	return r
}

// stagers bring base images and boot artifacts to hosts, out of one cache. jobs wake the reconciler of machines.
func (o *options) stagers(mgr ctrl.Manager, runners *hostrunner.Runners, jobs *job.Runner, connector hosts.Connector) (
	*baseimage.Stager, *bootartifact.Stager, error,
) {
	cache, err := o.artifacts(mgr)
	if err != nil {
		return nil, nil, err
	}
	images := &baseimage.Stager{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Runners: runners, Jobs: jobs,
		Fetcher: &baseimage.CacheFetcher{Cache: cache, Secrets: mgr.GetAPIReader()},
	}
	return images, bootartifact.NewStager(mgr.GetClient(), mgr.GetAPIReader(), cache, connector, jobs), nil
}
