// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/test/bench/host"
)

// servedImage is the guest's image on an HTTPS server of this machine.
type servedImage struct {
	url, sha256 string
	// certificate is the server's, in PEM, where it has one that can be trusted.
	certificate []byte
}

// serveImage serves the guest's image. The server's certificate is its own.
func serveImage(t *testing.T) servedImage {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(sendImage))
	t.Cleanup(server.Close)
	return servedImage{url: server.URL + "/" + imageName, sha256: imageDigest(t)}
}

// serveImageTo serves the guest's image where the host can fetch it.
func serveImageTo(t *testing.T, h *host.Host) servedImage {
	t.Helper()
	g := NewWithT(t)
	address := h.Gateway()
	certificate, key, err := cert.GenerateSelfSignedCertKey(address, []net.IP{net.ParseIP(address)}, nil)
	g.Expect(err).NotTo(HaveOccurred())
	pair, err := tls.X509KeyPair(certificate, key)
	g.Expect(err).NotTo(HaveOccurred())
	server := httptest.NewUnstartedServer(http.HandlerFunc(sendImage))
	g.Expect(server.Listener.Close()).To(Succeed())
	server.Listener, err = net.Listen("tcp", net.JoinHostPort(address, "0"))
	g.Expect(err).NotTo(HaveOccurred())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return servedImage{url: server.URL + "/" + imageName, sha256: imageDigest(t), certificate: certificate}
}

func sendImage(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, suite.image) }

// imageDigest is the SHA-256 of the guest's image.
func imageDigest(t *testing.T) string {
	t.Helper()
	g := NewWithT(t)
	image, err := os.Open(suite.image)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = image.Close() }()
	sum := sha256.New()
	g.Expect(io.Copy(sum, image)).Error().NotTo(HaveOccurred())
	return hex.EncodeToString(sum.Sum(nil))
}

// stageFrom has the cluster's machines start from a served image.
func (w *world) stageFrom(image servedImage, delivery infrav1.BaseImageDelivery) {
	w.t.Helper()
	lc := &infrav1.LibvirtCluster{}
	w.g.Expect(suite.cp.Client().Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "prod"}, lc)).To(Succeed())
	lc.Spec.BaseImage = &infrav1.BaseImage{Pool: "default", VolumeName: imageName, Delivery: delivery, Source: infrav1.BaseImageSource{
		Type: infrav1.SourceTypeHTTPS,
		HTTPS: &infrav1.HTTPSBaseImage{
			// A host never skips it.
			HTTPSAccess: infrav1.HTTPSAccess{InsecureSkipTLSVerify: delivery == infrav1.DeliveryPush}, URL: infrav1.HTTPSURL(image.url), SHA256: infrav1.SHA256(image.sha256),
		},
	}}
	w.g.Expect(suite.cp.Client().Update(w.t.Context(), lc)).To(Succeed())
}

// filesWith lists the files below a directory that hold a text.
func filesWith(t *testing.T, dir, text string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(content), text) {
			found = append(found, path)
		}
		return err
	})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return found
}
