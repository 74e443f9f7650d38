// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package csr_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/domain"
	"github.com/caplv/caplv/operator/naming"
)

const (
	soon   = 10 * time.Second
	namesp = "default"
)

// user is somebody who posts a request.
type user struct {
	name   string
	groups []string
}

var (
	token         = user{"system:bootstrap:abcdef", []string{"system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token", "system:authenticated"}}
	machineConfig = user{"system:serviceaccount:openshift-machine-config-operator:node-bootstrapper", []string{
		"system:serviceaccounts", "system:serviceaccounts:openshift-machine-config-operator", "system:authenticated"}}
)

func nodeUser(node string) user {
	return user{"system:node:" + node, []string{"system:nodes", "system:authenticated"}}
}

// bench is one machine, as it is when its domain has just started.
type bench struct {
	*WithT
	t     *testing.T
	c     client.Client
	lm    *infrav1.LibvirtMachine
	owner *clusterv1.Machine
}

// newBench creates a machine of this name. A test changes its status before it is written.
func newBench(t *testing.T, name string, change func(*infrav1.LibvirtMachine)) *bench {
	t.Helper()
	b := &bench{WithT: NewWithT(t), t: t, c: suite.cp.Client()}
	b.owner = &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namesp, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: "prod"}},
		Spec: clusterv1.MachineSpec{
			ClusterName: "prod", Bootstrap: clusterv1.Bootstrap{DataSecretName: new("boot")},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "LibvirtMachine", Name: name},
		},
	}
	b.create(b.owner)
	b.lm = &infrav1.LibvirtMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namesp, Name: name, Labels: b.owner.Labels, Finalizers: []string{infrav1.MachineFinalizer},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: b.owner.UID}},
		},
		Spec: infrav1.LibvirtMachineSpec{
			ProviderID: "libvirt://h/" + name,
			HostRef:    infrav1.LibvirtHostReference{Name: "h"},
			RootDisk:   infrav1.RootDiskSpec{Size: resource.MustParse("10Mi"), StoragePool: "default", BaseImage: "base.qcow2"},
			Network:    infrav1.NetworkSpec{Type: infrav1.NetworkTypeBridge, Name: "br0", Addresses: []infrav1.AddressCIDR{"192.0.2.5/24", "2001:db8::5/64"}},
		},
	}
	b.Expect(b.c.Create(t.Context(), b.lm)).To(Succeed())
	t.Cleanup(func() {
		ctx := context.Background()
		b.Expect(client.IgnoreNotFound(b.c.Patch(ctx, b.lm, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))))).To(Succeed())
		b.Expect(client.IgnoreNotFound(b.c.Delete(ctx, b.lm))).To(Succeed())
	})
	b.setStatus(func(lm *infrav1.LibvirtMachine) {
		lm.Status.NodeName = b.node()
		lm.Status.DomainUUID = domain.UUID(string(lm.UID))
		lm.Status.CreationStartedAt = new(metav1.Now())
		lm.Status.Initialization.Provisioned = new(true)
		setRunning(lm, metav1.ConditionTrue)
		if change != nil {
			change(lm)
		}
	})
	return b
}

func setRunning(lm *infrav1.LibvirtMachine, status metav1.ConditionStatus) {
	conditions.Set(lm, metav1.Condition{Type: infrav1.DomainRunningCondition, Status: status, Reason: infrav1.RunningReason})
}

func (b *bench) node() string { return naming.Machine(namesp, "prod", b.owner.Name) }

// create creates an object for the time of the test.
func (b *bench) create(o client.Object) {
	b.t.Helper()
	b.Expect(b.c.Create(b.t.Context(), o)).To(Succeed())
	b.t.Cleanup(func() { b.Expect(client.IgnoreNotFound(b.c.Delete(context.Background(), o))).To(Succeed()) })
}

func (b *bench) setStatus(change func(*infrav1.LibvirtMachine)) {
	b.t.Helper()
	b.Expect(b.c.Get(b.t.Context(), client.ObjectKeyFromObject(b.lm), b.lm)).To(Succeed())
	change(b.lm)
	b.Expect(b.c.Status().Update(b.t.Context(), b.lm)).To(Succeed())
}

// addNode registers the machine's Node.
func (b *bench) addNode(providerID string) *corev1.Node {
	b.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.node()}, Spec: corev1.NodeSpec{ProviderID: providerID}}
	b.create(node)
	return node
}

// request is a request for a certificate before it is posted. The defaults are those of a kubelet.
type request struct {
	by        user
	serving   bool
	subject   pkix.Name
	names     []string
	addresses []string
	usages    []certificatesv1.KeyUsage
	seconds   *int32
}

func (b *bench) client() request {
	return request{by: token, subject: subject(b.node()), usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}}
}

func (b *bench) serving() request {
	return request{
		by: nodeUser(b.node()), serving: true, subject: subject(b.node()), names: []string{b.node()}, addresses: []string{"192.0.2.5", "2001:db8::5"},
		usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
	}
}

func subject(node string) pkix.Name {
	return pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}
}

// post makes a key and posts the request as its user, whom the API server writes into it.
func (b *bench) post(r request) *certificatesv1.CertificateSigningRequest {
	b.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	b.Expect(err).NotTo(HaveOccurred())
	template := &x509.CertificateRequest{Subject: r.subject, DNSNames: r.names}
	for _, address := range r.addresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	b.Expect(err).NotTo(HaveOccurred())
	object := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, Usages: r.usages, ExpirationSeconds: r.seconds,
		},
	}
	if r.serving {
		object.Spec.SignerName = certificatesv1.KubeletServingSignerName
	}
	config := suite.cp.RESTConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: r.by.name, Groups: r.by.groups}
	poster, err := client.New(config, client.Options{Scheme: b.c.Scheme()})
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(poster.Create(b.t.Context(), object)).To(Succeed())
	b.t.Cleanup(func() { b.Expect(client.IgnoreNotFound(b.c.Delete(context.Background(), object))).To(Succeed()) })
	return object
}

// state is what was decided about a request: empty while it is pending.
func (b *bench) state(object *certificatesv1.CertificateSigningRequest) string {
	b.t.Helper()
	current := &certificatesv1.CertificateSigningRequest{}
	b.Expect(b.c.Get(b.t.Context(), client.ObjectKeyFromObject(object), current)).To(Succeed())
	var types []string
	for _, c := range current.Status.Conditions {
		types = append(types, string(c.Type)+" by "+c.Reason)
	}
	return strings.Join(types, ", ")
}

func (b *bench) expectApproved(object *certificatesv1.CertificateSigningRequest) {
	b.t.Helper()
	b.Eventually(func() string { return b.state(object) }, soon, 50*time.Millisecond).Should(Equal("Approved by ApprovedByCAPLV"))
}

// expectEvent waits for an Event about an object.
func (b *bench) expectEvent(about client.Object, reason string) {
	b.t.Helper()
	b.Eventually(func() []string {
		list := &eventsv1.EventList{}
		b.Expect(b.c.List(b.t.Context(), list)).To(Succeed())
		var reasons []string
		for i := range list.Items {
			if list.Items[i].Regarding.UID == about.GetUID() {
				reasons = append(reasons, list.Items[i].Reason)
			}
		}
		return reasons
	}, soon, 100*time.Millisecond).Should(ContainElement(reason))
}
