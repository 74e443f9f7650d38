// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
)

// FuzzParse feeds requests that no kubelet would make: nothing may panic, and whatever comes out is signed with its own key.
func FuzzParse(f *testing.F) {
	g := NewWithT(f)
	f.Add(clientDraft().sign(g).Spec.Request, false)
	f.Add(servingDraft().sign(g).Spec.Request, true)
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n"), true)
	f.Fuzz(func(t *testing.T, content []byte, serving bool) {
		d := clientDraft()
		if serving {
			d = servingDraft()
		}
		d.csr.Spec.Request = content
		request, decision := Parse(&d.csr)
		if (request == nil) == (decision == nil) {
			t.Fatalf("one of %v and %v must be there", request, decision)
		}
		if request == nil {
			return
		}
		block, _ := pem.Decode(content)
		parsed, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil || parsed.CheckSignature() != nil || parsed.Subject.CommonName != "system:node:"+request.NodeName {
			t.Fatalf("%+v came from a request that does not say so (%v)", request, err)
		}
	})
}

// FuzzDecide feeds requests that are signed, by all kinds of requesters and for all kinds of names. What is approved is looked at
// once more, in another way: it may speak for the one node that the machine is, and for nobody else.
func FuzzDecide(f *testing.F) {
	const client, serving = certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName
	const nodes, tokens = "system:nodes,system:authenticated", "system:bootstrappers,system:authenticated"
	f.Add(client, "system:bootstrap:abcdef", tokens, "system:node:"+node, "system:nodes", "", []byte{}, "digital signature,client auth", int32(600))
	f.Add(serving, "system:node:"+node, nodes, "system:node:"+node, "system:nodes", node, []byte{192, 0, 2, 5}, "digital signature,server auth", int32(0))
	f.Add(serving, "system:node:"+node, nodes, "system:node:"+node, "system:nodes", "kubernetes", []byte{192, 0, 2, 1}, "digital signature,server auth", int32(0))
	f.Add(client, "system:bootstrap:abcdef", tokens+",system:masters", "system:node:other", "system:nodes,system:masters", "x", []byte{1, 2, 3, 4}, "any", int32(1<<30))
	f.Fuzz(func(t *testing.T, signer, user, groups, commonName, organizations, dns string, ips []byte, usages string, seconds int32) {
		d := clientDraft()
		d.template.Subject = pkix.Name{CommonName: commonName, Organization: list(organizations)}
		d.template.DNSNames = list(dns)
		for chunk := range slices.Chunk(ips, net.IPv4len) {
			if len(chunk) == net.IPv4len {
				d.template.IPAddresses = append(d.template.IPAddresses, net.IP(chunk))
			}
		}
		der, err := x509.CreateCertificateRequest(nil, &d.template, testKey)
		if err != nil {
			return // Names that cannot be encoded.
		}
		d.csr.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
		d.csr.Spec.SignerName, d.csr.Spec.Username, d.csr.Spec.Groups, d.csr.Spec.ExpirationSeconds = signer, user, list(groups), &seconds
		d.csr.Spec.Usages = nil
		for _, usage := range list(usages) {
			d.csr.Spec.Usages = append(d.csr.Spec.Usages, certificatesv1.KeyUsage(usage))
		}
		request, decision := Parse(&d.csr)
		if decision != nil {
			return
		}
		known := knownForClient()
		if request.Serving {
			known = knownForServing()
		}
		if request.NodeName != node {
			known.Machines, known.Machine = 0, Machine{}
		}
		if request.Decide(known).Outcome == Approve {
			confirm(t, d, known)
		}
	})
}

// confirm fails when an approved request says anything that it may not.
func confirm(t *testing.T, d *draft, known *Known) {
	t.Helper()
	spec, subject := d.csr.Spec, d.template.Subject
	if subject.CommonName != "system:node:"+node || len(subject.Organization) != 1 || subject.Organization[0] != "system:nodes" {
		t.Errorf("approved for subject %s", subject)
	}
	if slices.Contains(spec.Groups, "system:masters") || *spec.ExpirationSeconds > 367*24*3600 || len(spec.Usages) > 3 {
		t.Errorf("approved: %+v", spec)
	}
	isNode := spec.Username == subject.CommonName
	switch spec.SignerName {
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		if isNode || len(d.template.DNSNames)+len(d.template.IPAddresses) > 0 || !slices.Contains(spec.Groups, "system:bootstrappers") {
			t.Errorf("approved client certificate: %+v", spec)
		}
	case certificatesv1.KubeletServingSignerName:
		if !isNode || slices.ContainsFunc(d.template.DNSNames, func(name string) bool { return name != node }) {
			t.Errorf("approved serving certificate with names %q", d.template.DNSNames)
		}
		for _, ip := range d.template.IPAddresses {
			address, _ := netip.AddrFromSlice(ip)
			if !slices.Contains(known.Machine.Addresses, address) {
				t.Errorf("approved serving certificate with address %s", address)
			}
		}
	default:
		t.Errorf("approved for signer %s", spec.SignerName)
	}
}

// list splits at commas; nothing is no list.
func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}
