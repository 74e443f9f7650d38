// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/caplv/caplv/operator/webhook"
)

// authority is a CA that issues serving certificates for 127.0.0.1.
type authority struct {
	g    Gomega
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	next int64
}

func newAuthority(g Gomega) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	g.Expect(err).NotTo(HaveOccurred())
	cert, err := x509.ParseCertificate(der)
	g.Expect(err).NotTo(HaveOccurred())
	return &authority{g: g, key: key, cert: cert, next: 100}
}

func (a *authority) bundle() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// issue writes a certificate and its key into dir, and returns its serial number.
func (a *authority) issue(dir string) int64 {
	a.next++
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.g.Expect(err).NotTo(HaveOccurred())
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(a.next), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.cert, key.Public(), a.key)
	a.g.Expect(err).NotTo(HaveOccurred())
	private, err := x509.MarshalPKCS8PrivateKey(key)
	a.g.Expect(err).NotTo(HaveOccurred())
	for name, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "PRIVATE KEY", Bytes: private}} {
		a.g.Expect(os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600)).To(Succeed())
	}
	return a.next
}

// servedSerial is the serial number of the certificate that the webhooks are served with.
func servedSerial(ctx context.Context) (int64, error) {
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(suite.server.Host, strconv.Itoa(suite.server.Port)))
	if err != nil {
		return 0, err
	}
	conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})
	defer func() { _ = conn.Close() }()
	if err := conn.HandshakeContext(ctx); err != nil {
		return 0, err
	}
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
}

// trust makes the API server trust a CA for the webhooks, as cert-manager's injector does.
func trust(ctx context.Context, g Gomega, bundle []byte) {
	hooks := &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	g.Expect(suite.cp.Client().List(ctx, hooks)).To(Succeed())
	g.Expect(hooks.Items).To(HaveLen(1))
	for i := range hooks.Items[0].Webhooks {
		hooks.Items[0].Webhooks[i].ClientConfig.CABundle = bundle
	}
	g.Expect(suite.cp.Client().Update(ctx, &hooks.Items[0])).To(Succeed())
}

func TestARenewedCertificateIsServedWithoutARestart(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	create := func() error {
		return suite.cp.Client().Create(ctx, changed(g, machineYAML, nil, nil), client.DryRunAll)
	}
	exchange := func(a *authority) {
		dir := t.TempDir()
		serial := a.issue(dir)
		g.Expect(mountSecret(suite.certs, dir)).To(Succeed())
		g.Eventually(func() (int64, error) { return servedSerial(ctx) }, 30*time.Second, 50*time.Millisecond).Should(Equal(serial))
	}
	a := newAuthority(g)
	exchange(a)
	trust(ctx, g, a.bundle())
	g.Eventually(create, 30*time.Second, 50*time.Millisecond).Should(Succeed(), "the new CA is trusted")

	// As a renewal does, with the API server calling all the time.
	failed, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(failed)
		for {
			select {
			case <-done:
				return
			default:
			}
			if err := create(); err != nil {
				failed <- err
				return
			}
		}
	}()
	exchange(a)
	close(done)
	g.Expect(<-failed).NotTo(HaveOccurred(), "a renewal under the same CA refuses nothing")
}

func TestAMissingCertificateIsNamed(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	g.Expect(webhook.CheckCertificate(dir)).To(MatchError(And(ContainSubstring(filepath.Join(dir, "tls.crt")), ContainSubstring("no such file"))))
	a := newAuthority(g)
	a.issue(dir)
	g.Expect(webhook.CheckCertificate(dir)).To(Succeed())
	other := t.TempDir()
	a.issue(other)
	key, err := os.ReadFile(filepath.Join(other, "tls.key"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600)).To(Succeed())
	g.Expect(webhook.CheckCertificate(dir)).To(MatchError(ContainSubstring("private key does not match")))
}
