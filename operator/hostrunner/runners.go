// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostrunner says who runs playbooks on a LibvirtHost, and how he gets there: with which account and key, and which host key he has to expect.
package hostrunner

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/hostconn"
	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/hostsetup"
	"github.com/caplv/caplv/operator/hosturi"
)

// BackendFunc returns the backend for a host. It may keep what it returns, and makes no request that takes long.
type BackendFunc func(ctx context.Context, lh *infrav1.LibvirtHost) (ansible.Backend, error)

// Runners know the backends, by the names of spec.bootstrap.backend. Errors of all methods can be given to hosts.Explain.
type Runners struct {
	// Secrets reads Secrets. It should not cache.
	Secrets client.Reader
	// Backends are those that there are.
	Backends map[infrav1.BootstrapBackend]BackendFunc
	// RequireFingerprint refuses hosts without spec.hostKeyFingerprint.
	RequireFingerprint bool
}

// Backend returns who runs playbooks on the host.
func (r *Runners) Backend(ctx context.Context, lh *infrav1.LibvirtHost) (ansible.Backend, error) {
	name := infrav1.BackendSidecar
	if b := lh.Spec.Bootstrap; b != nil && b.Backend != "" {
		name = b.Backend
	}
	if get := r.Backends[name]; get != nil {
		return get(ctx, lh)
	}
	message := fmt.Sprintf("this operator has no backend %s; set another spec.bootstrap.backend", name)
	if name == infrav1.BackendSidecar {
		message = "this operator runs without the Ansible sidecar (--ansible-runner-socket is empty); deploy it, or set spec.bootstrap.backend to AWX"
	}
	return nil, hosts.NewConfigError(infrav1.RunnerUnavailableReason, message)
}

// Target returns how the playbooks get to the host.
func (r *Runners) Target(ctx context.Context, lh *infrav1.LibvirtHost) (ansible.Host, error) {
	target, _, err := r.Reach(ctx, lh)
	return target, err
}

// Reach is Target, and the fingerprint of the host key: the one of spec, else that of status, else of the key that the host shows now, which the caller
// has to record before anything is sent to the host.
func (r *Runners) Reach(ctx context.Context, lh *infrav1.LibvirtHost) (target ansible.Host, fingerprint string, err error) {
	b := lh.Spec.Bootstrap
	uri, err := hosturi.Parse(lh.Spec.URI)
	if err != nil {
		return target, "", hosts.NewConfigError(infrav1.InvalidURIReason, "spec."+err.Error())
	}
	address, port, err := net.SplitHostPort(uri.Address)
	if err != nil {
		return target, "", hosts.NewConfigError(infrav1.InvalidURIReason, "spec.uri has no usable address")
	}
	if b.Port != 0 {
		port = strconv.Itoa(int(b.Port))
	}
	target = ansible.Host{Name: hostsetup.HostName(lh), Address: address, User: b.User}
	if target.User == "" {
		target.User = "root"
	}
	if target.Port, err = strconv.Atoi(port); err != nil {
		return target, "", hosts.NewConfigError(infrav1.InvalidURIReason, "spec.uri has no usable port")
	}
	if b.Backend != infrav1.BackendAWX {
		if err := r.login(ctx, lh, &target); err != nil {
			return target, "", err
		}
	}
	pinned := lh.Spec.HostKeyFingerprint
	if pinned == "" && r.RequireFingerprint {
		return target, "", hosts.NewConfigError(infrav1.HostKeyNotPinnedReason,
			"spec.hostKeyFingerprint is required by this operator (--require-host-key-fingerprint); get it with: ssh-keyscan HOST | ssh-keygen -lf -")
	}
	if pinned == "" {
		pinned = lh.Status.HostKeyFingerprint
	}
	key, err := hostconn.Identify(ctx, net.JoinHostPort(address, port), pinned)
	if err != nil {
		return target, "", err
	}
	target.HostKeys = []string{key.Line}
	return target, key.Fingerprint, nil
}

// login adds what the account of spec.bootstrap logs in and becomes root with.
func (r *Runners) login(ctx context.Context, lh *infrav1.LibvirtHost, target *ansible.Host) error {
	name := client.ObjectKey{Namespace: lh.Namespace, Name: lh.Spec.Bootstrap.SecretRef.Name}
	if name.Name == "" {
		return hosts.NewConfigError(infrav1.SecretNotFoundReason, "spec.bootstrap.secretRef names no Secret; it has to hold the SSH private key of "+target.User)
	}
	secret := &corev1.Secret{}
	if err := r.Secrets.Get(ctx, name, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return hosts.NewConfigError(infrav1.SecretNotFoundReason, fmt.Sprintf(
				"Secret %s of spec.bootstrap.secretRef does not exist; create it with the SSH private key of %s under %q", name, target.User, infrav1.SSHPrivateKeySecretKey))
		}
		return fmt.Errorf("reading Secret %s: %w", name, err)
	}
	key := secret.Data[infrav1.SSHPrivateKeySecretKey]
	if len(key) == 0 {
		return hosts.NewConfigError(infrav1.SecretNotFoundReason, fmt.Sprintf(
			"Secret %s of spec.bootstrap.secretRef has no key %q; it must hold the SSH private key of %s", name, infrav1.SSHPrivateKeySecretKey, target.User))
	}
	if _, err := hostsetup.PublicHalf(key); err != nil {
		return hosts.NewConfigError(infrav1.InvalidPrivateKeyReason, fmt.Sprintf("Secret %s of spec.bootstrap.secretRef: %v", name, err))
	}
	target.PrivateKey, target.BecomePassword = string(key), strings.TrimRight(string(secret.Data[infrav1.BecomePasswordSecretKey]), "\r\n")
	return nil
}
