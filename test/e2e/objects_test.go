// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/url"
	"strconv"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/test/bench/host"
)

const (
	imageName = "guest.qcow2"
	ignition  = `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/etc/marker","contents":{"source":"data:,e2e"}}]}}`
)

// world is the namespace of one test, with its host, Cluster and LibvirtHost.
type world struct {
	t         *testing.T
	g         *WithT
	namespace string
	host      *host.Host
	lhost     *infrav1.LibvirtHost
	// untouched is what was on the host before the operator knew of it.
	untouched string
}

// newWorld brings up a host with the guest's image and the objects that a machine needs. prepare changes the host before the
// operator knows of it.
func newWorld(t *testing.T, prepare ...func(*world)) *world {
	t.Helper()
	w := newNamespace(t)
	h, err := suite.hosts.Up(t.Context(), w.namespace)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.useHost(h)
	w.g.Expect(h.Copy(t.Context(), suite.image, "/var/lib/libvirt/images/"+imageName)).To(Succeed())
	w.g.Expect(h.Run(t.Context(), "virsh", "-c", "qemu:///system", "pool-refresh", "default")).To(Succeed())
	for _, p := range prepare {
		p(w)
	}
	w.introduceHost(h.URI())
	return w
}

// useHost makes a host the test's own, which goes with it.
func (w *world) useHost(h *host.Host) {
	w.host = h
	t := w.t
	t.Cleanup(func() {
		if t.Failed() {
			w.explain()
		}
		w.deleteEverything()
		if err := h.Down(cleanupContext(t)); err != nil {
			t.Errorf("taking host %s down: %v", h.Name, err)
		}
	})
}

// introduceHost makes the operator know the host.
func (w *world) introduceHost(uri string) {
	w.t.Helper()
	// Before that it has neither processes nor files there.
	w.untouched = w.listing()
	w.createHostSecret(w.host.PrivateKey)
	w.lhost = w.libvirtHost(uri, w.host.Fingerprint)
	w.create(w.lhost)
}

// newNamespace makes the objects that need no host.
func newNamespace(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, g: NewWithT(t)}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e"}}
	w.create(ns)
	w.namespace = ns.Name
	endpoint := w.apiEndpoint()
	w.create(&infrav1.LibvirtCluster{ObjectMeta: w.meta("prod"), Spec: infrav1.LibvirtClusterSpec{ControlPlaneEndpoint: endpoint}})
	w.create(&clusterv1.Cluster{ObjectMeta: w.meta("prod"), Spec: clusterv1.ClusterSpec{
		ControlPlaneEndpoint: endpoint,
		InfrastructureRef:    clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "LibvirtCluster", Name: "prod"},
	}})
	return w
}

func (w *world) apiEndpoint() clusterv1.APIEndpoint {
	u, err := url.Parse(suite.cp.RESTConfig().Host)
	w.g.Expect(err).NotTo(HaveOccurred())
	port, err := strconv.ParseInt(u.Port(), 10, 32)
	w.g.Expect(err).NotTo(HaveOccurred())
	return clusterv1.APIEndpoint{Host: u.Hostname(), Port: int32(port)}
}

func (w *world) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.namespace, Name: name}
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	w.g.Expect(suite.cp.Client().Create(w.t.Context(), o)).To(Succeed())
}

func (w *world) createHostSecret(key []byte) {
	w.create(&corev1.Secret{ObjectMeta: w.meta("host-ssh"), Type: corev1.SecretTypeSSHAuth, Data: map[string][]byte{corev1.SSHAuthPrivateKey: key}})
}

// libvirtHost is a LibvirtHost that leaves all of the machine's memory and CPUs to the guests.
func (w *world) libvirtHost(uri, fingerprint string) *infrav1.LibvirtHost {
	return &infrav1.LibvirtHost{ObjectMeta: w.meta("host"), Spec: infrav1.LibvirtHostSpec{
		URI: uri, SecretRef: infrav1.LocalSecretReference{Name: "host-ssh"}, HostKeyFingerprint: fingerprint,
		VirtType:          infrav1.VirtTypeQEMU,
		ReservedResources: infrav1.ReservedResources{VCPUs: ptr.To[int32](0), MemoryMB: ptr.To[int32](0)},
	}}
}

// libvirtMachine is the smallest machine; the test changes what it is about.
func (w *world) libvirtMachine(name string) *infrav1.LibvirtMachine {
	meta := w.meta(name)
	meta.Labels = map[string]string{clusterv1.ClusterNameLabel: "prod"}
	return &infrav1.LibvirtMachine{ObjectMeta: meta, Spec: infrav1.LibvirtMachineSpec{
		HostRef:  infrav1.LibvirtHostReference{Name: "host"},
		Domain:   infrav1.DomainSpec{VCPUs: ptr.To[int32](1), MemoryMB: ptr.To[int32](256), Firmware: infrav1.FirmwareBIOS},
		RootDisk: infrav1.RootDiskSpec{Size: resource.MustParse("1Gi"), StoragePool: "default", BaseImage: imageName},
		Network: infrav1.NetworkSpec{
			Type: infrav1.NetworkTypeBridge, Name: "br0", Addresses: []infrav1.AddressCIDR{"192.0.2.50/24"}, Gateway: "192.0.2.1",
			DNS: infrav1.DNSSpec{Nameservers: []infrav1.IPAddress{"192.0.2.1"}},
		},
		BootstrapFormat: infrav1.BootstrapFormatIgnition,
	}}
}

// createMachine creates a Machine with its bootstrap data and the given LibvirtMachine, as Cluster API's users do.
func (w *world) createMachine(lm *infrav1.LibvirtMachine) {
	w.t.Helper()
	w.createMachineWith(lm, ignition)
}

// createMachineWith is createMachine with other bootstrap data, of the format that the LibvirtMachine says.
func (w *world) createMachineWith(lm *infrav1.LibvirtMachine, bootstrapData string) {
	w.t.Helper()
	w.create(&corev1.Secret{ObjectMeta: w.meta(lm.Name + "-bootstrap"), Type: clusterv1.ClusterSecretType,
		Data: map[string][]byte{"value": []byte(bootstrapData), "format": []byte(lm.Spec.BootstrapFormat)}})
	w.create(lm)
	meta := w.meta(lm.Name)
	meta.Labels = map[string]string{clusterv1.ClusterNameLabel: "prod"}
	w.create(&clusterv1.Machine{ObjectMeta: meta, Spec: clusterv1.MachineSpec{
		ClusterName:       "prod",
		Bootstrap:         clusterv1.Bootstrap{DataSecretName: new(lm.Name + "-bootstrap")},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "LibvirtMachine", Name: lm.Name},
	}})
}

// deleteMachine deletes the Machine and its bootstrap data; Cluster API deletes the LibvirtMachine.
func (w *world) deleteMachine(name string) {
	w.t.Helper()
	w.g.Expect(suite.cp.Client().Delete(w.t.Context(), &clusterv1.Machine{ObjectMeta: w.meta(name)})).To(Succeed())
	w.g.Expect(suite.cp.Client().Delete(w.t.Context(), &corev1.Secret{ObjectMeta: w.meta(name + "-bootstrap")})).To(Succeed())
}

// nodeName is the name that the machine has everywhere.
func (w *world) nodeName(machine string) string {
	return fmt.Sprintf("%s-prod-%s", w.namespace, machine)
}
