// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/hosts"
)

const (
	replays   = 20
	replayGap = time.Second
	// replayBound is how long the old objects may take on a slow machine.
	replayBound = 20 * time.Second
)

// TestTheSameNamesAreCreatedAndDeletedAgainAndAgain replays what 5-Spot does with a machine, next to the real Cluster API: it posts bootstrap object,
// LibvirtMachine and Machine, each of the same name and without owners; later it deletes Machine, bootstrap object and LibvirtMachine without waiting for
// any of them; and a second after they are gone it posts them again. In between, the kubelet joins, and sometimes has a Pod.
//
// While its Machine is still there, Cluster API would delete a new LibvirtMachine of the same name with it.
func TestTheSameNamesAreCreatedAndDeletedAgainAndAgain(t *testing.T) {
	connector := &guardedConnector{hosts: map[string]probedHost{}, down: map[string]bool{}}
	f := startFleet(t, fleetOptions{workers: 10, shippedRights: true, whole: true}, func(client.Reader) hosts.Connector { return connector })
	f.prepare()
	f.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-bootstrapper"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:bootstrappers"}},
	})
	l := &leaver{fleet: f, name: "spot", host: newFakeHost(), connector: connector}
	connector.hosts["host-spot"] = probedHost{l.host}
	before := l.host.inventory()
	l.addHost("host-spot", "spot.example.com")

	var own, strangers []*certificatesv1.CertificateSigningRequest
	var slowest time.Duration
	for i := range replays {
		l.post()
		l.expect(infrav1.DomainRunningCondition, "True/Running")
		strangers = append(strangers, l.request("default-prod-stranger"))
		mine := l.request(l.nodeName())
		l.Eventually(func() bool { return l.approved(mine) }, leaveBound, leaveTick).Should(BeTrue(), "each incarnation joins")
		own, strangers = append(own, mine), append(strangers, l.request(l.nodeName()))
		l.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: l.nodeName()}})
		l.expect(infrav1.NodeJoinedCondition, "True/NodeJoined")
		if i%10 == 0 {
			l.pod("pod", nil) // A drain takes two looks, 2 s apart.
		}
		l.unpost()
		slowest = max(slowest, l.expectUnposted())
		time.Sleep(replayGap)
	}
	t.Logf("the slowest objects were gone after %s", slowest.Round(10*time.Millisecond))

	l.Expect(l.host.inventory()).To(Equal(before))
	l.Expect(l.nodeExists()).To(BeFalse())
	l.Expect(l.lhost().Status.MachineRef).To(BeNil())
	l.Expect(l.lhost().Status.Leftovers).To(BeEmpty())
	pods := &corev1.PodList{}
	l.Expect(l.c.List(t.Context(), pods)).To(Succeed())
	l.Expect(pods.Items).To(BeEmpty(), "each was evicted")
	for i, request := range own {
		l.Expect(l.approved(request)).To(BeTrue(), fmt.Sprint(i))
	}
	for i, request := range strangers {
		l.Expect(l.approved(request)).To(BeFalse(), fmt.Sprint(i))
	}
	defined := slices.DeleteFunc(l.host.did(), func(step string) bool { return step != "define "+l.nodeName() })
	l.Expect(len(defined)).To(BeNumerically(">=", replays))
	connector.mu.Lock()
	defer connector.mu.Unlock()
	l.Expect(connector.doubles).To(BeEmpty(), "no domain was defined beside another one")
}

// post creates the three objects in 5-Spot's order.
func (l *leaver) post() {
	l.t.Helper()
	lm := &infrav1.LibvirtMachine{ObjectMeta: fleetMeta(l.name), Spec: newObjects().lmachine.Spec}
	lm.Spec.HostRef.Name = "host-" + l.name
	l.create(&corev1.Secret{ObjectMeta: fleetMeta(l.name), Data: map[string][]byte{"value": []byte(`{"ignition":{"version":"3.2.0"}}`)}})
	l.create(lm)
	l.create(&clusterv1.Machine{ObjectMeta: fleetMeta(l.name), Spec: clusterv1.MachineSpec{
		ClusterName: "prod", Bootstrap: clusterv1.Bootstrap{DataSecretName: new(l.name)},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "LibvirtMachine", Name: l.name},
	}})
}

// expectUnposted waits until Machine and LibvirtMachine are gone, and returns how long it took.
func (l *leaver) expectUnposted() time.Duration {
	l.t.Helper()
	began := time.Now()
	l.Eventually(func() bool {
		return l.exists(&clusterv1.Machine{ObjectMeta: fleetMeta(l.name)}) || l.exists(&infrav1.LibvirtMachine{ObjectMeta: fleetMeta(l.name)})
	}, replayBound, leaveTick).Should(BeFalse())
	return time.Since(began)
}

// unpost deletes them in 5-Spot's order.
func (l *leaver) unpost() {
	l.t.Helper()
	for _, o := range []client.Object{
		&clusterv1.Machine{ObjectMeta: fleetMeta(l.name)}, &corev1.Secret{ObjectMeta: fleetMeta(l.name)}, &infrav1.LibvirtMachine{ObjectMeta: fleetMeta(l.name)},
	} {
		l.Expect(l.c.Delete(l.t.Context(), o)).To(Succeed())
	}
}

// request posts a request for a client certificate of a Node, with bootstrap credentials.
func (l *leaver) request(node string) *certificatesv1.CertificateSigningRequest {
	l.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	l.Expect(err).NotTo(HaveOccurred())
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
	}, key)
	l.Expect(err).NotTo(HaveOccurred())
	config := rest.CopyConfig(l.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:bootstrap:abcdef", Groups: []string{"system:bootstrappers", "system:authenticated"}}
	kubelet, err := client.New(config, client.Options{Scheme: l.c.Scheme()})
	l.Expect(err).NotTo(HaveOccurred())
	request := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
	l.Expect(kubelet.Create(l.t.Context(), request)).To(Succeed())
	return request
}

func (l *leaver) approved(request *certificatesv1.CertificateSigningRequest) bool {
	l.Expect(l.c.Get(l.t.Context(), client.ObjectKeyFromObject(request), request)).To(Succeed())
	return slices.ContainsFunc(request.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateApproved
	})
}
