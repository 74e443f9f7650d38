// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

const (
	// MaxLifetime bounds the lifetime that a request may ask for: a year, and a day or two for whoever counts leap years.
	MaxLifetime = 367 * 24 * time.Hour

	nodeUserPrefix = "system:node:"
	nodesGroup     = "system:nodes"
	authenticated  = "system:authenticated"

	bootstrapUserPrefix = "system:bootstrap:"
	bootstrapGroup      = "system:bootstrappers"
	// machineConfigNamespace and machineConfigUser are what OpenShift's machine config gives to a new node.
	machineConfigNamespace = "openshift-machine-config-operator"
	machineConfigUser      = "system:serviceaccount:" + machineConfigNamespace + ":node-bootstrapper"

	maxRequestBytes = 64 << 10
)

// tokenID is the public half of a bootstrap token.
var tokenID = regexp.MustCompile(`^[a-z0-9]{6}$`)

// nodeName is what a Node can be called: a DNS subdomain in lower case.
var nodeName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)

var (
	oidCommonName   = asn1.ObjectIdentifier{2, 5, 4, 3}
	oidOrganization = asn1.ObjectIdentifier{2, 5, 4, 10}
	oidSAN          = asn1.ObjectIdentifier{2, 5, 29, 17}
)

// Request is a request for a kubelet's certificate that is in order by itself: by the right requester, for the right subject, with
// the right usages. It comes from Parse only.
type Request struct {
	// Name and UID are those of the CertificateSigningRequest.
	Name, UID string
	// Created is its creation, by the clock of the API server.
	Created time.Time
	// Serving tells a serving certificate from a client certificate.
	Serving bool
	// NodeName is the node that the certificate would speak for.
	NodeName string
	// DNSNames and Addresses are the subject alternative names of a serving certificate; at least one is there.
	DNSNames  []string
	Addresses []netip.Addr
	// PublicKeySHA256 is the digest of the public key, in hexadecimal.
	PublicKeySHA256 string
}

// Signer returns whether a signer issues a kubelet's certificates, and whether those are serving certificates.
func Signer(name string) (known, serving bool) {
	switch name {
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		return true, false
	case certificatesv1.KubeletServingSignerName:
		return true, true
	}
	return false, false
}

// Pending returns whether nobody has decided about a request, and it has not been signed.
func Pending(csr *certificatesv1.CertificateSigningRequest) bool {
	return len(csr.Status.Certificate) == 0 && !slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateApproved || c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed
	})
}

// Parse applies the rules for which nothing but the request has to be known. It returns the request, or the decision to ignore it.
func Parse(csr *certificatesv1.CertificateSigningRequest) (*Request, *Decision) {
	known, serving := Signer(csr.Spec.SignerName)
	if !known {
		return nil, ignore(OtherSigner, "signer %q issues no kubelet certificates", csr.Spec.SignerName)
	}
	if !Pending(csr) {
		return nil, ignore(AlreadyDecided, "the request was approved, denied, failed or signed before")
	}
	content, decision := decode(csr.Spec.Request)
	if decision != nil {
		return nil, decision
	}
	digest := sha256.Sum256(content.RawSubjectPublicKeyInfo)
	r := &Request{
		Name: csr.Name, UID: string(csr.UID), Created: csr.CreationTimestamp.Time, Serving: serving,
		NodeName: strings.TrimPrefix(content.Subject.CommonName, nodeUserPrefix), PublicKeySHA256: hex.EncodeToString(digest[:]),
	}
	for _, rule := range []func() *Decision{
		func() *Decision { return checkRequester(&csr.Spec, serving) },
		func() *Decision { return checkSubject(content.Subject, &csr.Spec, serving) },
		func() *Decision { return checkUsages(csr.Spec.Usages, serving) },
		func() *Decision { return r.takeAlternativeNames(content) },
		func() *Decision { return checkLifetime(csr.Spec.ExpirationSeconds) },
	} {
		if decision := rule(); decision != nil {
			return nil, decision
		}
	}
	return r, nil
}

// decode reads exactly one PEM block with a request that its key has signed.
func decode(request []byte) (*x509.CertificateRequest, *Decision) {
	if len(request) > maxRequestBytes {
		return nil, ignore(Malformed, "spec.request has %d bytes, more than any kubelet's", len(request))
	}
	block, rest := pem.Decode(request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(block.Headers) > 0 || len(bytes.TrimSpace(rest)) > 0 {
		return nil, ignore(Malformed, "spec.request is not exactly one PEM block CERTIFICATE REQUEST without headers")
	}
	content, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, ignore(Malformed, "spec.request is no PKCS #10 request: %v", err)
	}
	if err := content.CheckSignature(); err != nil {
		return nil, ignore(Malformed, "the request is not signed with its own key: %v", err)
	}
	return content, nil
}

// checkRequester lets a node ask for its serving certificate, and a machine that has nothing but bootstrap credentials for its first
// client certificate. The API server fills these fields in from how the requester has authenticated.
func checkRequester(spec *certificatesv1.CertificateSigningRequestSpec, serving bool) *Decision {
	isNode := strings.HasPrefix(spec.Username, nodeUserPrefix) && sameSet(spec.Groups, nodesGroup, authenticated)
	switch {
	case serving && isNode:
		return nil
	case !serving && isNode:
		return ignore(Renewal, "%s renews its client certificate, which kube-controller-manager approves", spec.Username)
	case !serving && (isBootstrapToken(spec) || isMachineConfig(spec)):
		return nil
	}
	return ignore(ForeignRequester, "user %q in groups %q may not ask for this certificate", spec.Username, spec.Groups)
}

// isBootstrapToken recognises a bootstrap token: all groups of one begin in the same way.
func isBootstrapToken(spec *certificatesv1.CertificateSigningRequestSpec) bool {
	id, found := strings.CutPrefix(spec.Username, bootstrapUserPrefix)
	if !found || !tokenID.MatchString(id) || !slices.Contains(spec.Groups, bootstrapGroup) || !slices.Contains(spec.Groups, authenticated) {
		return false
	}
	return !slices.ContainsFunc(spec.Groups, func(group string) bool {
		return group != bootstrapGroup && group != authenticated && !strings.HasPrefix(group, bootstrapGroup+":")
	})
}

func isMachineConfig(spec *certificatesv1.CertificateSigningRequestSpec) bool {
	return spec.Username == machineConfigUser &&
		sameSet(spec.Groups, "system:serviceaccounts", "system:serviceaccounts:"+machineConfigNamespace, authenticated)
}

// checkSubject requires a common name and an organization, and nothing else: whatever rides along would be signed.
func checkSubject(subject pkix.Name, spec *certificatesv1.CertificateSigningRequestSpec, serving bool) *Decision {
	var names, organizations int
	for _, part := range subject.Names {
		switch {
		case part.Type.Equal(oidCommonName):
			names++
		case part.Type.Equal(oidOrganization):
			organizations++
		}
	}
	name, found := strings.CutPrefix(subject.CommonName, nodeUserPrefix)
	switch {
	case names != 1 || organizations != 1 || len(subject.Names) != 2 || subject.Organization[0] != nodesGroup:
		return ignore(WrongSubject, "the subject is %q; it must be one common name and the organization %s", subject, nodesGroup)
	case !found || !nodeName.MatchString(name):
		return ignore(WrongSubject, "the common name %q is not %sNAME", subject.CommonName, nodeUserPrefix)
	case serving && spec.Username != subject.CommonName:
		return ignore(WrongSubject, "%s asks for a certificate of %s", spec.Username, subject.CommonName)
	}
	return nil
}

// checkUsages requires one of two exact sets: an RSA key may also encipher keys.
func checkUsages(usages []certificatesv1.KeyUsage, serving bool) *Decision {
	role := certificatesv1.UsageClientAuth
	if serving {
		role = certificatesv1.UsageServerAuth
	}
	if sameSet(usages, certificatesv1.UsageDigitalSignature, role) ||
		sameSet(usages, certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, role) {
		return nil
	}
	return ignore(WrongUsages, "usages are %q; they must be digital signature and %s, with or without key encipherment", usages, role)
}

// takeAlternativeNames checks of which kind the subject alternative names are, and keeps them.
func (r *Request) takeAlternativeNames(content *x509.CertificateRequest) *Decision {
	if !r.Serving {
		// The extension itself counts: it may hold kinds of names that the parser does not know.
		if slices.ContainsFunc(content.Extensions, func(e pkix.Extension) bool { return e.Id.Equal(oidSAN) }) {
			return ignore(WrongAlternativeNames, "a kubelet's client certificate has no subject alternative names")
		}
		return nil
	}
	if len(content.EmailAddresses) > 0 || len(content.URIs) > 0 || len(content.DNSNames)+len(content.IPAddresses) == 0 {
		return ignore(WrongAlternativeNames, "a kubelet's serving certificate has DNS names or IP addresses, at least one, and nothing else")
	}
	r.DNSNames = content.DNSNames
	for _, ip := range content.IPAddresses {
		address, ok := netip.AddrFromSlice(ip)
		if !ok {
			return ignore(Malformed, "%v is no IP address", ip)
		}
		r.Addresses = append(r.Addresses, address.Unmap())
	}
	return nil
}

func checkLifetime(seconds *int32) *Decision {
	if seconds == nil || time.Duration(*seconds)*time.Second <= MaxLifetime {
		return nil
	}
	return ignore(TooLongLived, "spec.expirationSeconds is %d; at most %d are approved", *seconds, int(MaxLifetime.Seconds()))
}

// sameSet compares without order. A member that is named twice is a difference.
func sameSet[T ~string](got []T, want ...T) bool {
	sorted := slices.Sorted(slices.Values(got))
	slices.Sort(want)
	return slices.Equal(sorted, want)
}

// Failed returns whether the signer has refused a request for good.
func Failed(csr *certificatesv1.CertificateSigningRequest) bool {
	return len(csr.Status.Certificate) == 0 && slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateFailed
	})
}
