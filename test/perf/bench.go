// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/test/bench/controlplane"
	"github.com/caplv/caplv/test/bench/host"
	"github.com/caplv/caplv/test/bench/operator"
)

const (
	namespace   = "perf"
	clusterName = "prod"
	hostName    = "host"
	imageName   = "guest.qcow2"
	imagePath   = "/var/lib/libvirt/images/" + imageName
	rootBytes   = 1 << 30
	poll        = 50 * time.Millisecond
)

// bench is a control plane, the operator, one host, and a connection by hand to it.
type bench struct {
	dir      string
	cp       *controlplane.ControlPlane
	client   client.WithWatch
	operator *operator.Operator
	scraper  *operator.Scraper
	hosts    *host.Bench
	host     *host.Host
	hand     *hand
}

// newBench brings everything up. What it returns has to be torn down, also after an error.
func newBench(ctx context.Context) (*bench, error) {
	b := &bench{}
	repository, err := os.Getwd()
	if err != nil {
		return b, err
	}
	if b.dir, err = os.MkdirTemp("", "caplv-perf-"); err != nil {
		return b, err
	}
	image, err := host.GuestImage(ctx, repository)
	if err != nil {
		return b, err
	}
	if b.hosts, err = host.New(repository, filepath.Join(host.DefaultDir, "perf")); err != nil {
		return b, err
	}
	if b.cp, err = controlplane.Start(ctx, controlplane.Options{
		Dir: b.dir, CRDDir: filepath.Join(repository, "operator", "config", "crd"),
		AddToScheme: []func(*runtime.Scheme) error{infrav1.AddToScheme},
	}); err != nil {
		return b, err
	}
	if b.client, err = client.NewWithWatch(b.cp.RESTConfig(), client.Options{Scheme: b.cp.Client().Scheme()}); err != nil {
		return b, err
	}
	if b.operator, err = operator.New(ctx, b.cp, operator.Options{Repository: repository, Dir: b.dir}); err != nil {
		return b, err
	}
	if err := b.operator.Start(ctx); err != nil {
		return b, err
	}
	if b.scraper, err = b.operator.Scraper(ctx); err != nil {
		return b, err
	}
	if b.host, err = b.hosts.Up(ctx, "perf"); err != nil {
		return b, err
	}
	if err := b.host.Copy(ctx, image, imagePath); err != nil {
		return b, err
	}
	if err := b.host.Run(ctx, "virsh", "-c", "qemu:///system", "pool-refresh", "default"); err != nil {
		return b, err
	}
	if b.hand, err = dialByHand(ctx, b.host.SSHAddress(), b.host.Fingerprint, b.host.PrivateKey); err != nil {
		return b, err
	}
	if err := b.createSurroundings(ctx); err != nil {
		return b, err
	}
	return b, nil
}

// tearDown stops what was started. Logs stay when that fails.
func (b *bench) tearDown() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	if b.hand != nil {
		_ = b.hand.client.Close()
	}
	if b.cp != nil {
		// The operator is one of its processes.
		errs = append(errs, b.cp.Stop())
	}
	if b.hosts != nil {
		errs = append(errs, b.hosts.DownAll(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("tearing down; the logs are in %s: %w", b.dir, err)
	}
	return os.RemoveAll(b.dir)
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName}}
}

// createSurroundings creates what a machine needs, and waits until the host and the cluster are ready.
func (b *bench) createSurroundings(ctx context.Context) error {
	u, err := url.Parse(b.cp.RESTConfig().Host)
	if err != nil {
		return err
	}
	port, err := strconv.ParseInt(u.Port(), 10, 32)
	if err != nil {
		return fmt.Errorf("the API server's address %s has no port: %w", u, err)
	}
	endpoint := clusterv1.APIEndpoint{Host: u.Hostname(), Port: int32(port)}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&infrav1.LibvirtCluster{ObjectMeta: meta(clusterName), Spec: infrav1.LibvirtClusterSpec{ControlPlaneEndpoint: endpoint}},
		&clusterv1.Cluster{ObjectMeta: meta(clusterName), Spec: clusterv1.ClusterSpec{
			ControlPlaneEndpoint: endpoint,
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: infrav1.GroupVersion.Group, Kind: "LibvirtCluster", Name: clusterName,
			},
		}},
		&corev1.Secret{
			ObjectMeta: meta("host-ssh"), Type: corev1.SecretTypeSSHAuth,
			Data: map[string][]byte{corev1.SSHAuthPrivateKey: b.host.PrivateKey},
		},
		&infrav1.LibvirtHost{ObjectMeta: meta(hostName), Spec: infrav1.LibvirtHostSpec{
			URI: b.host.URI(), SecretRef: infrav1.LocalSecretReference{Name: "host-ssh"}, HostKeyFingerprint: b.host.Fingerprint,
			VirtType:          infrav1.VirtTypeQEMU,
			ReservedResources: infrav1.ReservedResources{VCPUs: ptr.To[int32](0), MemoryMB: ptr.To[int32](0)},
		}},
	} {
		if err := b.client.Create(ctx, o); err != nil {
			return fmt.Errorf("creating %T %s: %w", o, o.GetName(), err)
		}
	}
	return b.until(ctx, "the host and the cluster are ready", func() (bool, error) {
		lh, cluster := &infrav1.LibvirtHost{}, &clusterv1.Cluster{}
		if err := b.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: hostName}, lh); err != nil {
			return false, err
		}
		if err := b.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: clusterName}, cluster); err != nil {
			return false, err
		}
		return conditions.IsTrue(lh, infrav1.HostReadyCondition) && ptr.Deref(cluster.Status.Initialization.InfrastructureProvisioned, false), nil
	})
}

// until polls. It is for what is not measured.
func (b *bench) until(ctx context.Context, what string, reached func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		ok, err := reached()
		if err != nil {
			return fmt.Errorf("waiting until %s: %w", what, err)
		}
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain until %s; the operator's log: %s", what, b.operator.LogPath())
		case <-time.After(poll):
		}
	}
}
