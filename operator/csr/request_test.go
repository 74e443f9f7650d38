// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const node = "default-prod-worker01"

var (
	start = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	// testKey is fixed, so that fuzzing finds the same again.
	testKey = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
)

// draft is a request before it is signed.
type draft struct {
	template x509.CertificateRequest
	csr      certificatesv1.CertificateSigningRequest
}

func clientDraft() *draft {
	return &draft{
		template: x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}},
		csr: certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: "node-csr-1", UID: "uid-csr", CreationTimestamp: metav1.NewTime(start.Add(time.Minute))},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
				Username:   "system:bootstrap:abcdef",
				Groups:     []string{"system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token", "system:authenticated"},
				Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
			},
		},
	}
}

func servingDraft() *draft {
	d := clientDraft()
	d.template.DNSNames = []string{node}
	d.template.IPAddresses = []net.IP{net.ParseIP("192.0.2.5"), net.ParseIP("2001:db8::5")}
	d.csr.Spec.SignerName = certificatesv1.KubeletServingSignerName
	d.csr.Spec.Username = "system:node:" + node
	d.csr.Spec.Groups = []string{"system:nodes", "system:authenticated"}
	d.csr.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}
	return d
}

// sign fills in spec.request, unless the test has done so.
func (d *draft) sign(g Gomega) *certificatesv1.CertificateSigningRequest {
	if d.csr.Spec.Request == nil {
		der, err := x509.CreateCertificateRequest(nil, &d.template, testKey)
		g.Expect(err).NotTo(HaveOccurred())
		d.csr.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	}
	return &d.csr
}

func otherName(g Gomega) pkix.Extension {
	value, err := asn1.Marshal([]asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: []byte{0x06, 0x01, 0x2a}}})
	g.Expect(err).NotTo(HaveOccurred())
	return pkix.Extension{Id: oidSAN, Value: value}
}

func TestARequestIsInOrderByItself(t *testing.T) {
	const machineConfig = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper"
	machineConfigGroups := []string{"system:serviceaccounts", "system:serviceaccounts:openshift-machine-config-operator", "system:authenticated"}
	encipherment := certificatesv1.UsageKeyEncipherment
	for _, row := range []struct {
		name    string
		serving bool
		change  func(*draft)
		// want is empty for a request that is in order.
		want Reason
	}{
		{"a bootstrap token asks for a client certificate", false, func(*draft) {}, ""},
		{"with an RSA key", false, func(d *draft) { d.csr.Spec.Usages = append(d.csr.Spec.Usages, encipherment) }, ""},
		{"a token without groups of its own", false, func(d *draft) { d.csr.Spec.Groups = []string{"system:authenticated", "system:bootstrappers"} }, ""},
		{"OpenShift's machine config asks", false, func(d *draft) { d.csr.Spec.Username, d.csr.Spec.Groups = machineConfig, machineConfigGroups }, ""},
		{"a node asks for a serving certificate", true, func(*draft) {}, ""},
		{"a node with an RSA key", true, func(d *draft) { d.csr.Spec.Usages = append(d.csr.Spec.Usages, encipherment) }, ""},
		{"only an address", true, func(d *draft) { d.template.DNSNames = nil }, ""},
		{"only a name", true, func(d *draft) { d.template.IPAddresses = nil }, ""},
		{"a lifetime of a year", true, func(d *draft) { d.csr.Spec.ExpirationSeconds = new(int32(365 * 24 * 3600)) }, ""},

		{"another signer", false, func(d *draft) { d.csr.Spec.SignerName = certificatesv1.KubeAPIServerClientSignerName }, OtherSigner},
		{"a name that begins like a signer", true, func(d *draft) { d.csr.Spec.SignerName += "x" }, OtherSigner},
		{"an approved request", false, condition(certificatesv1.CertificateApproved), AlreadyDecided},
		{"a denied request", false, condition(certificatesv1.CertificateDenied), AlreadyDecided},
		{"a failed request", false, condition(certificatesv1.CertificateFailed), AlreadyDecided},
		{"a signed request", false, func(d *draft) { d.csr.Status.Certificate = []byte("x") }, AlreadyDecided},

		{"no PEM", false, func(d *draft) { d.csr.Spec.Request = []byte("x") }, Malformed},
		{"PEM of another type", false, reencode(func(b *pem.Block) { b.Type = "NEW CERTIFICATE REQUEST" }, ""), Malformed},
		{"PEM with headers", false, reencode(func(b *pem.Block) { b.Headers = map[string]string{"a": "b"} }, ""), Malformed},
		{"something behind the PEM block", false, reencode(func(*pem.Block) {}, "-----BEGIN X-----"), Malformed},
		{"no PKCS #10", false, reencode(func(b *pem.Block) { b.Bytes = b.Bytes[:20] }, ""), Malformed},
		{"a signature of another key", false, reencode(func(b *pem.Block) { b.Bytes[len(b.Bytes)-1] ^= 1 }, ""), Malformed},
		{"a request without end", false, func(d *draft) { d.csr.Spec.Request = make([]byte, maxRequestBytes+1) }, Malformed},

		{"an administrator asks for a node", false, func(d *draft) {
			d.csr.Spec.Username, d.csr.Spec.Groups = "admin", []string{"system:masters", "system:authenticated"}
		}, ForeignRequester},
		{"a token that is none (H5)", false, func(d *draft) { d.csr.Spec.Username = "system:bootstrap:me" }, ForeignRequester},
		{"a user of that name without the group (H5)", false, func(d *draft) { d.csr.Spec.Groups = []string{"system:authenticated"} }, ForeignRequester},
		{"a token in a group of administrators (H5)", false, func(d *draft) { d.csr.Spec.Groups = append(d.csr.Spec.Groups, "system:masters") }, ForeignRequester},
		{"a group that begins like the tokens'", false, func(d *draft) { d.csr.Spec.Groups = append(d.csr.Spec.Groups, "system:bootstrappersx") }, ForeignRequester},
		{"the machine config's name without its groups (H5)", false, func(d *draft) { d.csr.Spec.Username = machineConfig }, ForeignRequester},
		{"the machine config's name with one group more (H5)", false, func(d *draft) {
			d.csr.Spec.Username, d.csr.Spec.Groups = machineConfig, slices.Concat(machineConfigGroups, []string{"system:masters"})
		}, ForeignRequester},
		{"a service account of another namespace", false, func(d *draft) {
			d.csr.Spec.Username, d.csr.Spec.Groups = "system:serviceaccount:x:node-bootstrapper", machineConfigGroups
		}, ForeignRequester},
		{"a node renews its client certificate (H6)", false, func(d *draft) {
			d.csr.Spec.Username, d.csr.Spec.Groups = "system:node:"+node, []string{"system:nodes", "system:authenticated"}
		}, Renewal},
		{"a bootstrap token asks for a serving certificate", true, func(d *draft) {
			d.csr.Spec.Username, d.csr.Spec.Groups = "system:bootstrap:abcdef", []string{"system:bootstrappers", "system:authenticated"}
		}, ForeignRequester},
		{"a node that is no member of the nodes", true, func(d *draft) { d.csr.Spec.Groups = []string{"system:authenticated"} }, ForeignRequester},
		{"a node with one group more", true, func(d *draft) { d.csr.Spec.Groups = append(d.csr.Spec.Groups, "system:masters") }, ForeignRequester},

		{"a second organization (H5)", false, func(d *draft) { d.template.Subject.Organization = []string{"system:nodes", "system:masters"} }, WrongSubject},
		{"another organization", false, func(d *draft) { d.template.Subject.Organization = []string{"system:masters"} }, WrongSubject},
		{"no organization", false, func(d *draft) { d.template.Subject.Organization = nil }, WrongSubject},
		{"an organizational unit rides along", false, func(d *draft) { d.template.Subject.OrganizationalUnit = []string{"x"} }, WrongSubject},
		{"two common names", false, func(d *draft) {
			d.template.Subject.ExtraNames = []pkix.AttributeTypeAndValue{
				{Type: oidCommonName, Value: "system:node:a"}, {Type: oidCommonName, Value: "system:node:" + node}, {Type: oidOrganization, Value: "system:nodes"},
			}
		}, WrongSubject},
		{"a common name that is no node's", false, func(d *draft) { d.template.Subject.CommonName = node }, WrongSubject},
		{"a node without a name", false, func(d *draft) { d.template.Subject.CommonName = "system:node:" }, WrongSubject},
		{"a node's name that cannot be", false, func(d *draft) { d.template.Subject.CommonName = "system:node:A/b" }, WrongSubject},
		{"a node asks for another one", true, func(d *draft) { d.template.Subject.CommonName = "system:node:other" }, WrongSubject},

		{"a client certificate that can serve (H8)", false, func(d *draft) { d.csr.Spec.Usages = append(d.csr.Spec.Usages, certificatesv1.UsageServerAuth) }, WrongUsages},
		{"a client certificate that can sign certificates (H8)", false, func(d *draft) { d.csr.Spec.Usages = append(d.csr.Spec.Usages, certificatesv1.UsageCertSign) }, WrongUsages},
		{"a client certificate without signatures (H8)", false, func(d *draft) { d.csr.Spec.Usages = d.csr.Spec.Usages[1:] }, WrongUsages},
		{"usages of the other kind", true, func(d *draft) { d.csr.Spec.Usages = clientDraft().csr.Spec.Usages }, WrongUsages},
		{"no usages", true, func(d *draft) { d.csr.Spec.Usages = nil }, WrongUsages},

		{"a client certificate with a DNS name (H5)", false, func(d *draft) { d.template.DNSNames = []string{node} }, WrongAlternativeNames},
		{"a client certificate with an address (H5)", false, func(d *draft) { d.template.IPAddresses = []net.IP{net.IPv4(192, 0, 2, 5)} }, WrongAlternativeNames},
		{"a client certificate with a name of a kind that is not parsed", false, func(d *draft) {
			d.template.ExtraExtensions = []pkix.Extension{otherName(NewWithT(t))}
		}, WrongAlternativeNames},
		{"a serving certificate without names (H7)", true, func(d *draft) { d.template.DNSNames, d.template.IPAddresses = nil, nil }, WrongAlternativeNames},
		{"a serving certificate with an e-mail address", true, func(d *draft) { d.template.EmailAddresses = []string{"a@example.com"} }, WrongAlternativeNames},
		{"a serving certificate with a URI", true, func(d *draft) { d.template.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}} }, WrongAlternativeNames},

		{"a lifetime of ten years (H8)", false, func(d *draft) { d.csr.Spec.ExpirationSeconds = new(int32(10 * 365 * 24 * 3600)) }, TooLongLived},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			d := clientDraft()
			if row.serving {
				d = servingDraft()
			}
			row.change(d)
			request, decision := Parse(d.sign(g))
			if row.want == "" {
				g.Expect(decision).To(BeNil())
				g.Expect(request.NodeName).To(Equal(node))
				g.Expect(request.Serving).To(Equal(row.serving))
				return
			}
			g.Expect(request).To(BeNil())
			g.Expect(decision.Outcome).To(Equal(Ignore))
			g.Expect(decision.Reason).To(Equal(row.want), decision.Message)
			g.Expect(decision.Message).NotTo(BeEmpty())
		})
	}
}

func condition(conditionType certificatesv1.RequestConditionType) func(*draft) {
	return func(d *draft) {
		d.csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: conditionType}}
	}
}

// reencode changes the PEM block of a request that is in order, and adds something behind it.
func reencode(change func(*pem.Block), behind string) func(*draft) {
	return func(d *draft) {
		der, err := x509.CreateCertificateRequest(nil, &d.template, testKey)
		if err != nil {
			panic(err)
		}
		block := &pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}
		change(block)
		d.csr.Spec.Request = append(pem.EncodeToMemory(block), behind...)
	}
}

func TestARequestIsRead(t *testing.T) {
	g := NewWithT(t)
	request, decision := Parse(servingDraft().sign(g))
	g.Expect(decision).To(BeNil())
	g.Expect(request.PublicKeySHA256).To(HaveLen(64))
	request.PublicKeySHA256 = ""
	g.Expect(*request).To(Equal(Request{
		Name: "node-csr-1", UID: "uid-csr", Created: start.Add(time.Minute), Serving: true, NodeName: node,
		DNSNames: []string{node}, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.5"), netip.MustParseAddr("2001:db8::5")},
	}))
}
