// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package csr_test

import (
	"crypto/x509/pkix"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

func TestAMachineJoins(t *testing.T) {
	b := newBench(t, "joins", nil)
	first := b.post(b.client())
	b.expectApproved(first)
	b.expectEvent(first, "CertificateApproved")
	b.expectEvent(b.lm, "CertificateApproved")
	b.Expect(b.c.Get(t.Context(), client.ObjectKeyFromObject(b.lm), b.lm)).To(Succeed())
	b.Expect(b.lm.Status.NodeClientCertificate).To(HaveValue(And(
		HaveField("RequestName", first.Name), HaveField("RequestUID", string(first.UID)), HaveField("PublicKeySHA256", HaveLen(64)),
	)))

	second := b.post(b.client())
	b.expectEvent(b.lm, "CertificateApprovedBefore")
	b.Expect(b.state(second)).To(BeEmpty(), "one incarnation of a machine gets one client certificate")

	b.addNode(b.lm.Spec.ProviderID)
	serving := b.post(b.serving())
	b.expectApproved(serving)
	renewal := b.post(b.serving())
	b.expectApproved(renewal)
}

func TestOfTwoRequestsAtOnceOneIsApproved(t *testing.T) {
	b := newBench(t, "twice", func(lm *infrav1.LibvirtMachine) { setRunning(lm, metav1.ConditionFalse) })
	requests := []*certificatesv1.CertificateSigningRequest{b.post(b.client()), b.post(b.client()), b.post(b.client())}
	b.setStatus(func(lm *infrav1.LibvirtMachine) { setRunning(lm, metav1.ConditionTrue) })
	approved := func() (count int) {
		for _, request := range requests {
			if b.state(request) != "" {
				count++
			}
		}
		return count
	}
	b.Eventually(approved, soon).Should(Equal(1))
	b.Consistently(approved, 3*time.Second, 200*time.Millisecond).Should(Equal(1))
}

func TestOpenShiftsMachineConfigMayAsk(t *testing.T) {
	b := newBench(t, "openshift", nil)
	r := b.client()
	r.by = machineConfig
	b.expectApproved(b.post(r))
}

// TestHolesAreClosed posts, to a real API server, what the approver that users know lets through.
func TestHolesAreClosed(t *testing.T) {
	b := newBench(t, "holes", nil)
	joined := newBench(t, "joined", nil)
	joined.addNode(joined.lm.Spec.ProviderID)
	neighbour := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "neighbour"}}
	b.create(neighbour)
	deleting := newBench(t, "deleting", nil)
	b.Expect(b.c.Delete(t.Context(), deleting.lm)).To(Succeed())
	old := newBench(t, "old", func(lm *infrav1.LibvirtMachine) {
		lm.Status.CreationStartedAt = new(metav1.NewTime(time.Now().Add(time.Hour)))
	})
	ambiguous := newBench(t, "ambiguous", nil)
	newBench(t, "namesake", func(lm *infrav1.LibvirtMachine) { lm.Status.NodeName = ambiguous.node() })
	foreignOwner := newBench(t, "disowned", nil)
	foreignOwner.owner.Spec.InfrastructureRef.Name = "other"
	b.Expect(b.c.Update(t.Context(), foreignOwner.owner)).To(Succeed())

	change := func(r request, change func(*request)) request {
		change(&r)
		return r
	}
	rows := map[string]request{
		"H1: another node's address":                          change(joined.serving(), func(r *request) { r.addresses = []string{"192.0.2.6"} }),
		"H1: the API server's address":                        change(joined.serving(), func(r *request) { r.addresses = append(r.addresses, apiAddress) }),
		"H2: a Node that exists":                              joined.client(),
		"H2: a request that is older than the machine":        old.client(),
		"H3: a Node that no machine has":                      change(b.client(), func(r *request) { r.subject = subject("neighbour") }),
		"H3: a Node that two machines have":                   ambiguous.client(),
		"H3: a machine with somebody else's Machine as owner": foreignOwner.client(),
		"H4: a machine that is being deleted":                 deleting.client(),
		"H5: a group too many":                                change(b.client(), func(r *request) { r.by.groups = append([]string{"system:masters"}, r.by.groups...) }),
		"H5: an organization too many":                        change(b.client(), func(r *request) { r.subject.Organization = append(r.subject.Organization, "system:masters") }),
		"H5: the machine config's name without its groups":    change(b.client(), func(r *request) { r.by.name = machineConfig.name }),
		"H5: a client certificate with a name":                change(b.client(), func(r *request) { r.names = []string{b.node()} }),
		"H6: a renewal of a client certificate":               change(joined.client(), func(r *request) { r.by = nodeUser(joined.node()) }),
		"H7: a name below the node's":                         change(joined.serving(), func(r *request) { r.names = []string{joined.node() + ".example.com"} }),
		"H7: no name at all":                                  change(joined.serving(), func(r *request) { r.names, r.addresses = nil, nil }),
		"H8: a usage too many":                                change(b.client(), func(r *request) { r.usages = append(r.usages, certificatesv1.UsageServerAuth) }),
		"H8: ten years":                                       change(b.client(), func(r *request) { r.seconds = new(int32(10 * 365 * 24 * 3600)) }),
		"a node asks for another one":                         change(b.serving(), func(r *request) { r.by = nodeUser("neighbour") }),
		"a user without a role":                               change(b.client(), func(r *request) { r.by = user{"admin", []string{"system:masters"}} }),
		"no subject":                                          change(b.client(), func(r *request) { r.subject = pkix.Name{} }),
	}
	posted := map[string]*certificatesv1.CertificateSigningRequest{}
	for name, r := range rows {
		posted[name] = b.post(r)
	}
	// The approver is at work, and comes to this one after the others.
	b.expectApproved(b.post(b.client()))
	time.Sleep(2 * time.Second)
	for name, object := range posted {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(b.state(object)).To(BeEmpty(), "neither approved nor denied: it may be somebody else's")
		})
	}
}

func TestTheShippedRoleApprovesForKubeletsOnly(t *testing.T) {
	b := newBench(t, "role", func(lm *infrav1.LibvirtMachine) { setRunning(lm, metav1.ConditionFalse) })
	object := b.post(b.client())
	foreign := object.DeepCopy()
	foreign.ObjectMeta = metav1.ObjectMeta{GenerateName: "foreign-"}
	foreign.Spec.SignerName = certificatesv1.KubeAPIServerClientSignerName
	foreign.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}
	b.create(foreign)
	foreign.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test", Message: "x",
	}}
	err := suite.account.SubResource("approval").Update(t.Context(), foreign)
	b.Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
	b.Expect(apierrors.IsForbidden(suite.account.Delete(t.Context(), object))).To(BeTrue())
	b.Expect(apierrors.IsForbidden(suite.account.List(t.Context(), &corev1.ServiceList{}))).To(BeTrue())
}

// TestAnEmptyOwnerIsNoOwner: 5-Spot creates the LibvirtMachine before the Machine.
func TestAnEmptyOwnerIsNoOwner(t *testing.T) {
	b := newBench(t, "orphan", nil)
	b.lm.OwnerReferences = nil
	b.Expect(b.c.Update(t.Context(), b.lm)).To(Succeed())
	object := b.post(b.client())
	b.expectEvent(b.lm, "CertificateOwnerMissing")
	b.Expect(b.state(object)).To(BeEmpty())
	b.lm.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: b.owner.Name, UID: b.owner.UID}}
	b.Expect(b.c.Update(t.Context(), b.lm)).To(Succeed())
	b.expectApproved(object)
}
