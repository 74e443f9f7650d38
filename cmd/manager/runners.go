// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/hostrunner"
)

// runners are those who can run playbooks. Secrets are read with a reader that does not cache.
func (o *options) runners(secrets client.Reader) *hostrunner.Runners {
	return &hostrunner.Runners{
		Secrets: secrets, RequireFingerprint: o.requireFingerprint,
		Backends: map[infrav1.BootstrapBackend]hostrunner.BackendFunc{},
	}
}
