// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// servedImage is the guest's image on an HTTPS server of this machine.
type servedImage struct{ url, sha256 string }

// serveImage serves the guest's image. The server's certificate is its own.
func serveImage(t *testing.T) servedImage {
	t.Helper()
	g := NewWithT(t)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, suite.image) }))
	t.Cleanup(server.Close)
	image, err := os.Open(suite.image)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = image.Close() }()
	sum := sha256.New()
	g.Expect(io.Copy(sum, image)).Error().NotTo(HaveOccurred())
	return servedImage{url: server.URL + "/" + imageName, sha256: hex.EncodeToString(sum.Sum(nil))}
}

// stageFrom has the cluster's machines start from a served image.
func (w *world) stageFrom(image servedImage) {
	w.t.Helper()
	lc := &infrav1.LibvirtCluster{}
	w.g.Expect(suite.cp.Client().Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "prod"}, lc)).To(Succeed())
	lc.Spec.BaseImage = &infrav1.BaseImage{Pool: "default", VolumeName: imageName, Source: infrav1.BaseImageSource{
		Type: infrav1.SourceTypeHTTPS,
		HTTPS: &infrav1.HTTPSBaseImage{
			HTTPSAccess: infrav1.HTTPSAccess{InsecureSkipTLSVerify: true}, URL: infrav1.HTTPSURL(image.url), SHA256: infrav1.SHA256(image.sha256),
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
