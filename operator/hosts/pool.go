// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/hostconn"
	"github.com/caplv/caplv/operator/hostctl"
	"github.com/caplv/caplv/operator/setup"
	"github.com/caplv/caplv/operator/virsh"
)

// Host is everything that a reconciler can do on a host. Errors of all methods can be given to Explain.
type Host interface {
	virsh.Client
	BootFiles

	// HostKeyFingerprint is the fingerprint (SHA256:…) of the SSH key that the host proved to have.
	HostKeyFingerprint() string
	// ProbeHelper checks that the root-owned helper can be run. It returns what the roles have recorded about the host, also along
	// with an error of the helper.
	ProbeHelper(ctx context.Context) (setup.Facts, error)
	// ProbeSession checks that a host in session mode has what that needs, for machines of virtType. On others it does nothing.
	ProbeSession(ctx context.Context, virtType string) error
	// Stage asks the helper for a machine's directory and bootstrap file. It returns whether anything changed.
	Stage(ctx context.Context, request hostctl.StageRequest) (bool, error)
	// Events starts a stream of what happens to the host's domains, over a session of its own. ctx bounds the start alone.
	Events(ctx context.Context) (*virsh.Events, error)
	// RemoveDirectory asks the helper to remove a machine's directory with everything in it.
	RemoveDirectory(ctx context.Context, name string) error
}

// Connector gives out hosts.
type Connector interface {
	// Connect returns the host behind a LibvirtHost. The connection is shared and verified against
	// spec.hostKeyFingerprint, else against status.hostKeyFingerprint; without both, the key that the host shows is
	// accepted, and the caller has to record it.
	Connect(ctx context.Context, host *infrav1.LibvirtHost) (Host, error)
	// Forget closes what is open for the LibvirtHost with this key.
	Forget(key client.ObjectKey)
}

// Pool is the Connector that uses SSH.
type Pool struct {
	// Secrets reads the Secrets with the SSH keys. It should not cache.
	secrets client.Reader
	conns   *hostconn.Pool

	mu   sync.Mutex
	open map[client.ObjectKey]*host
}

// NewPool returns a Pool that reads keys with secrets and connects with conns.
func NewPool(secrets client.Reader, conns *hostconn.Pool) *Pool {
	return &Pool{secrets: secrets, conns: conns, open: map[client.ObjectKey]*host{}}
}

// host ties the layers for one connection together.
type host struct {
	virsh.Client
	conn   *hostconn.Conn
	mode   virsh.Mode
	start  virsh.Starter
	helper *hostctl.Client
}

// CloneVolume uses a virsh of its own: a Client executes one operation after the other, and a copy takes minutes.
func (h *host) CloneVolume(ctx context.Context, pool, xml string, fromPool, fromVolume string) error {
	own := virsh.New(h.start, h.mode, virsh.Options{})
	defer func() { _ = own.Close() }()
	return own.CloneVolume(ctx, pool, xml, fromPool, fromVolume)
}

func (h *host) Events(ctx context.Context) (*virsh.Events, error) {
	return virsh.OpenEvents(ctx, h.start, h.mode, virsh.Options{})
}

func (h *host) HostKeyFingerprint() string { return h.conn.HostKeyFingerprint() }
func (h *host) ProbeHelper(ctx context.Context) (setup.Facts, error) {
	return h.helper.Probe(ctx)
}
func (h *host) Stage(ctx context.Context, r hostctl.StageRequest) (bool, error) {
	if h.mode == virsh.ModeSession {
		// There, QEMU runs as the account itself.
		r.Owner = hostctl.OwnerCaller
	}
	return h.helper.Stage(ctx, r)
}
func (h *host) RemoveDirectory(ctx context.Context, name string) error {
	return h.helper.Remove(ctx, name)
}

// Connect implements Connector.
func (p *Pool) Connect(ctx context.Context, lh *infrav1.LibvirtHost) (Host, error) {
	endpoint, err := ParseURI(lh.Spec.URI)
	if err != nil {
		return nil, &configError{reason: infrav1.InvalidURIReason, message: "spec." + err.Error()}
	}
	key, err := p.privateKey(ctx, lh)
	if err != nil {
		return nil, err
	}
	fingerprint := lh.Spec.HostKeyFingerprint
	if fingerprint == "" {
		fingerprint = lh.Status.HostKeyFingerprint
	}
	objectKey := client.ObjectKeyFromObject(lh)
	conn, err := p.conns.Get(ctx, objectKey.String(), hostconn.Target{
		Address: endpoint.Address, User: endpoint.User, PrivateKey: key, HostKeyFingerprint: fingerprint,
	})
	if err != nil {
		return nil, err
	}
	return p.hostOn(objectKey, conn, endpoint.Mode), nil
}

// hostOn returns the host that belongs to conn, and closes the virsh process of a connection that was replaced.
func (p *Pool) hostOn(key client.ObjectKey, conn *hostconn.Conn, mode virsh.Mode) *host {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.open[key]
	if old != nil && old.conn == conn && old.mode == mode {
		return old
	}
	if old != nil {
		_ = old.Close()
	}
	start := func(ctx context.Context, command string) (virsh.Process, error) { return conn.Start(ctx, command) }
	h := &host{Client: virsh.New(start, mode, virsh.Options{}), conn: conn, mode: mode, start: start, helper: hostctl.New(conn)}
	p.open[key] = h
	return h
}

// Forget implements Connector.
func (p *Pool) Forget(key client.ObjectKey) {
	p.mu.Lock()
	old := p.open[key]
	delete(p.open, key)
	p.mu.Unlock()
	if old != nil {
		_ = old.Close()
	}
	p.conns.Forget(key.String())
}

func (p *Pool) privateKey(ctx context.Context, lh *infrav1.LibvirtHost) ([]byte, error) {
	name := client.ObjectKey{Namespace: lh.Namespace, Name: lh.Spec.SecretRef.Name}
	secret := &corev1.Secret{}
	if err := p.secrets.Get(ctx, name, secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, &configError{reason: infrav1.SecretNotFoundReason, message: fmt.Sprintf(
				"Secret %s of spec.secretRef does not exist; create it with the SSH private key under %q", name, infrav1.SSHPrivateKeySecretKey)}
		}
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	key := secret.Data[infrav1.SSHPrivateKeySecretKey]
	if len(key) == 0 {
		return nil, &configError{reason: infrav1.SecretNotFoundReason, message: fmt.Sprintf(
			"Secret %s of spec.secretRef has no key %q; it must hold the SSH private key", name, infrav1.SSHPrivateKeySecretKey)}
	}
	return key, nil
}
