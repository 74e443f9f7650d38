// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package artifact_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/artifact"
	"github.com/caplv/caplv/operator/artifact/fault"
	"github.com/caplv/caplv/operator/artifact/fetch"
)

// haveReason matches an error that has a reason, and names a field.
func haveReason(g Gomega, err error, reason fault.Reason, field string) {
	g.ExpectWithOffset(1, err).To(HaveOccurred())
	g.ExpectWithOffset(1, fault.ReasonOf(err)).To(Equal(reason), err.Error())
	g.ExpectWithOffset(1, err.Error()).To(HavePrefix(field))
}

func TestABrokenConnectionIsResumedWhereItBroke(t *testing.T) {
	for name, compress := range compressions {
		for _, percent := range []int{1, 50, 99} {
			t.Run(fmt.Sprintf("%s, at %d %%", name, percent), func(t *testing.T) {
				g := NewWithT(t)
				file := noise(2 << 20)
				sent := compress(file)
				server := newFileServer(t, sent)
				server.cutAt, server.cuts = len(sent)*percent/100, 1
				cache := newCache(t, t.TempDir(), quick(server.roots()))
				got, err := cache.Get(t.Context(), server.source(), nil)
				g.Expect(err).NotTo(HaveOccurred())
				defer got.Release()
				g.Expect(got.SHA256).To(Equal(digestOf(file)))
				g.Expect(server.ranges.Load()).To(BeEquivalentTo(1))
				g.Expect(server.sent.Load()).To(BeNumerically("<=", len(sent)+64<<10), "nothing is transferred twice")
			})
		}
	}
}

func TestAServerWithoutValidatorsIsReadFromTheBeginning(t *testing.T) {
	g := NewWithT(t)
	file := noise(1 << 20)
	server := newFileServer(t, file)
	server.etag = ""
	server.cutAt, server.cuts = len(file)/2, 1
	cache := newCache(t, t.TempDir(), quick(server.roots()))
	got, err := cache.Get(t.Context(), server.source(), nil)
	g.Expect(err).NotTo(HaveOccurred())
	defer got.Release()
	g.Expect(got.SHA256).To(Equal(digestOf(file)))
	g.Expect(server.ranges.Load()).To(BeZero())
}

func TestAFileThatIsReplacedWhileItIsFetchedIsFetchedAnew(t *testing.T) {
	g := NewWithT(t)
	before, after := noise(1<<20), append(noise(1<<20), "new"...)
	server := newFileServer(t, before)
	server.cutAt, server.cuts = len(before)/2, 1
	server.fault = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Range") != "" {
			server.replace(after, `"2"`)
		}
		return false
	}
	cache := newCache(t, t.TempDir(), quick(server.roots()))
	got, err := cache.Get(t.Context(), server.source(), nil)
	g.Expect(err).NotTo(HaveOccurred())
	defer got.Release()
	g.Expect(got.SHA256).To(Equal(digestOf(after)))
}

func TestAFileThatIsReplacedLaterIsKeptBesideTheOldOne(t *testing.T) {
	g := NewWithT(t)
	server := newFileServer(t, []byte("one"))
	cache := newCache(t, t.TempDir(), quick(server.roots()))
	first, err := cache.Get(t.Context(), server.source(), nil)
	g.Expect(err).NotTo(HaveOccurred())
	defer first.Release()
	server.replace([]byte("another"), `"2"`)
	second, err := cache.Get(t.Context(), server.source(), nil)
	g.Expect(err).NotTo(HaveOccurred())
	defer second.Release()
	g.Expect(second.SHA256).To(Equal(digestOf([]byte("another"))))
	g.Expect(os.ReadFile(first.Path)).To(BeEquivalentTo("one"))
}

func TestAnAnswerOfTheServerHasItsReason(t *testing.T) {
	const url, secret = "spec.baseImage.source.https.url: ", "spec.baseImage.source.https.credentialsSecretRef: "
	for _, row := range []struct {
		status int
		reason fault.Reason
		field  string
		tries  int64
	}{
		{401, fault.Unauthorized, secret, 1},
		{403, fault.Unauthorized, secret, 1},
		{404, fault.NotFound, url, 1},
		{416, fault.ServerFailed, url, 1},
		{429, fault.Busy, url, 6},
		{500, fault.ServerFailed, url, 6},
		{503, fault.Busy, url, 6},
	} {
		t.Run(http.StatusText(row.status), func(t *testing.T) {
			g := NewWithT(t)
			server := newFileServer(t, []byte("x"))
			var tries int64
			server.fault = func(w http.ResponseWriter, _ *http.Request) bool {
				tries++
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(row.status)
				return true
			}
			cache := newCache(t, t.TempDir(), quick(server.roots()))
			_, err := cache.Get(t.Context(), server.source(), nil)
			haveReason(g, err, row.reason, row.field)
			g.Expect(tries).To(Equal(row.tries))

			server.fault = nil
			got, err := cache.Get(t.Context(), server.source(), nil)
			g.Expect(err).NotTo(HaveOccurred(), "the next try succeeds once the cause is gone")
			got.Release()
		})
	}
}

func TestAWrongDigestIsRefusedAndNothingIsKept(t *testing.T) {
	g := NewWithT(t)
	file := noise(1 << 20)
	server := newFileServer(t, gzipped(file))
	dir := t.TempDir()
	cache := newCache(t, dir, quick(server.roots()))
	source := server.source()
	source.SHA256 = digestOf([]byte("something else"))
	_, err := cache.Get(t.Context(), source, nil)
	haveReason(g, err, fault.DigestMismatch, "spec.baseImage.source.https.sha256: ")
	g.Expect(err.Error()).To(ContainSubstring(digestOf(file)))
	g.Expect(filepath.Glob(dir + "/*/*")).To(BeEmpty())

	source.SHA256 = digestOf(gzipped(file))
	_, err = cache.Get(t.Context(), source, nil)
	haveReason(g, err, fault.DigestMismatch, "spec.baseImage.source.https.sha256: this is the digest of the gzip file")
}

func TestADecompressionBombIsRefusedBeforeItFillsTheDisk(t *testing.T) {
	g := NewWithT(t)
	server := newFileServer(t, zstandard(make([]byte, 64<<20)))
	options := quick(server.roots())
	options.MaxSize = 1 << 20
	dir := t.TempDir()
	cache := newCache(t, dir, options)
	_, err := cache.Get(t.Context(), server.source(), nil)
	haveReason(g, err, fault.TooLarge, "spec.baseImage.source.https.url: ")
	g.Expect(filepath.Glob(dir + "/*/*")).To(BeEmpty())
}

func TestAFileThatEndsTooEarlyIsRefused(t *testing.T) {
	for name, compress := range compressions {
		if name == "raw" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			whole := compress(noise(1 << 20))
			server := newFileServer(t, whole[:len(whole)/2])
			cache := newCache(t, t.TempDir(), quick(server.roots()))
			_, err := cache.Get(t.Context(), server.source(), nil)
			haveReason(g, err, fault.Invalid, "spec.baseImage.source.https.url: ")
		})
	}
}

func TestAServerThatTricklesIsGivenUp(t *testing.T) {
	g := NewWithT(t)
	server := newFileServer(t, nil)
	server.fault = func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Length", "1000000")
		for range 200 {
			if _, err := w.Write([]byte{0}); err != nil || r.Context().Err() != nil {
				break
			}
			flush(w)
			time.Sleep(20 * time.Millisecond)
		}
		return true
	}
	options := quick(server.roots())
	options.Fetch.StallWindow, options.Fetch.Retries = 200*time.Millisecond, 1
	cache := newCache(t, t.TempDir(), options)
	_, err := cache.Get(t.Context(), server.source(), nil)
	haveReason(g, err, fault.Stalled, "spec.baseImage.source.https.url: ")
}

func TestAContentLengthThatLiesIsFoundOut(t *testing.T) {
	g := NewWithT(t)
	server := newFileServer(t, nil)
	server.fault = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Length", "4000000")
		_, _ = w.Write(noise(1000))
		panic(http.ErrAbortHandler)
	}
	cache := newCache(t, t.TempDir(), quick(server.roots()))
	_, err := cache.Get(t.Context(), server.source(), nil)
	haveReason(g, err, fault.Unreachable, "spec.baseImage.source.https.url: ")
}

func TestRedirectsLeadOnlyToHTTPSAndTakeNoCredentialsAlong(t *testing.T) {
	other := newFileServer(t, []byte("payload"))
	var leaked string
	other.fault = func(_ http.ResponseWriter, r *http.Request) bool {
		leaked = r.Header.Get("Authorization") + r.Header.Get("Referer")
		return false
	}
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	for _, row := range []struct {
		name, to string
		reason   fault.Reason
	}{
		{"to a file", "file:///etc/passwd", fault.RedirectRefused},
		{"to plain HTTP", plain.URL, fault.RedirectRefused},
		{"to another server", other.URL, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			server := newFileServer(t, nil)
			server.fault = func(w http.ResponseWriter, r *http.Request) bool {
				http.Redirect(w, r, row.to, http.StatusFound)
				return true
			}
			roots := server.roots()
			roots.AddCert(other.Certificate())
			cache := newCache(t, t.TempDir(), quick(roots))
			source := server.source()
			source.Location = fetch.HTTPS{URL: server.URL + "/f?token=secret"}
			source.Credentials = fetch.Credentials{Username: "u", Password: "secret"}
			got, err := cache.Get(t.Context(), source, nil)
			if row.reason == "" {
				g.Expect(err).NotTo(HaveOccurred())
				got.Release()
				g.Expect(leaked).To(BeEmpty())
				return
			}
			haveReason(g, err, row.reason, "spec.baseImage.source.https.url: ")
			g.Expect(fmt.Sprintf("%v %+v", err, source)).NotTo(ContainSubstring("u:secret"))
		})
	}
}

func TestCertificatesAreVerifiedUnlessTheSourceSaysOtherwise(t *testing.T) {
	g := NewWithT(t)
	expired := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("x")) }))
	certificate, pool := newCertificate(t, time.Now().Add(-time.Hour))
	expired.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	expired.StartTLS()
	t.Cleanup(expired.Close)
	server := newFileServer(t, []byte("x"))
	source := server.source()
	source.Location = fetch.HTTPS{URL: expired.URL + "/f"}
	cache := newCache(t, t.TempDir(), quick(pool))
	_, err := cache.Get(t.Context(), source, nil)
	haveReason(g, err, fault.CertificateInvalid, "spec.baseImage.source.https.insecureSkipTLSVerify: ")
	g.Expect(err.Error()).To(ContainSubstring("expired"))
	_, err = cache.Get(t.Context(), server.source(), nil)
	haveReason(g, err, fault.CertificateInvalid, "spec.baseImage.source.https.insecureSkipTLSVerify: ")

	source.InsecureSkipTLSVerify = true
	got, err := cache.Get(t.Context(), source, nil)
	g.Expect(err).NotTo(HaveOccurred())
	got.Release()
}

func TestCredentialsThatAreNotProvenGetNothingOutOfTheCache(t *testing.T) {
	g := NewWithT(t)
	file := []byte("private")
	server := newFileServer(t, file)
	server.fault = func(w http.ResponseWriter, r *http.Request) bool {
		user, password, _ := r.BasicAuth()
		if user == "u" && password == "p" {
			return false
		}
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	cache := newCache(t, t.TempDir(), quick(server.roots()))
	mine := server.source()
	mine.SHA256 = digestOf(file)
	mine.Credentials = fetch.Credentials{Username: "u", Password: "p"}
	got, err := cache.Get(t.Context(), mine, nil)
	g.Expect(err).NotTo(HaveOccurred())
	got.Release()
	theirs := mine
	theirs.Credentials = fetch.Credentials{}
	_, err = cache.Get(t.Context(), theirs, nil)
	haveReason(g, err, fault.Unauthorized, "spec.baseImage.source.https.credentialsSecretRef: ")

	server.Close()
	got, err = cache.Get(t.Context(), mine, nil)
	g.Expect(err).NotTo(HaveOccurred(), "a pinned file is not asked for again")
	got.Release()
}

func TestAURLWithAUserInItIsRefused(t *testing.T) {
	g := NewWithT(t)
	server := newFileServer(t, nil)
	source := server.source()
	source.Location = fetch.HTTPS{URL: "https://u:secret@example.com/f"}
	cache := newCache(t, t.TempDir(), quick(nil))
	_, err := cache.Get(t.Context(), source, nil)
	haveReason(g, err, fault.InvalidSource, "spec.baseImage.source.https.url: ")
	g.Expect(err.Error()).NotTo(ContainSubstring("secret@"))
}

func TestTheCacheEvictsWhatIsNotUsedAndRefusesWhatDoesNotFit(t *testing.T) {
	g := NewWithT(t)
	server := newFileServer(t, noise(600<<10))
	options := quick(server.roots())
	options.MaxBytes = 1 << 20
	cache := newCache(t, t.TempDir(), options)
	first, err := cache.Get(t.Context(), server.source(), nil)
	g.Expect(err).NotTo(HaveOccurred())
	server.replace(append(noise(600<<10), 1), `"2"`)
	_, err = cache.Get(t.Context(), server.source(), nil)
	g.Expect(fault.ReasonOf(err)).To(Equal(fault.CacheFull), "the first file is in use")
	g.Expect(first.Path).To(BeAnExistingFile())

	first.Release()
	second, err := cache.Get(t.Context(), server.source(), nil)
	g.Expect(err).NotTo(HaveOccurred())
	defer second.Release()
	g.Expect(first.Path).NotTo(BeAnExistingFile())
}

func TestTheCacheEvictsWhatNobodyRefersToFirst(t *testing.T) {
	fetch := func(t *testing.T, cache *artifact.Cache, source artifact.Source) string {
		t.Helper()
		file, err := cache.Get(t.Context(), source, nil)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		file.Release()
		return file.Path
	}
	for name, pin := range map[string]func(artifact.Source, []byte) artifact.Source{
		"by its digest":   func(s artifact.Source, file []byte) artifact.Source { s.SHA256 = digestOf(file); return s },
		"by its place":    func(s artifact.Source, _ []byte) artifact.Source { return s },
		"and not another": nil,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			old, recent := noise(400<<10), append(noise(400<<10), 1)
			oldServer, recentServer, nextServer := newFileServer(t, old), newFileServer(t, recent), newFileServer(t, append(noise(400<<10), 2))
			options := quick(oldServer.roots())
			options.MaxBytes = 1 << 20
			cache := newCache(t, t.TempDir(), options)
			oldPath, recentPath := fetch(t, cache, oldServer.source()), fetch(t, cache, recentServer.source())
			if pin != nil {
				cache.SetReferenced([]artifact.Source{pin(oldServer.source(), old)})
			}
			nextPath := fetch(t, cache, nextServer.source())
			g.Expect(nextPath).To(BeAnExistingFile())
			if pin != nil {
				g.Expect(oldPath).To(BeAnExistingFile())
				g.Expect(recentPath).NotTo(BeAnExistingFile())
			} else {
				g.Expect(oldPath).NotTo(BeAnExistingFile(), "its last use is the longest ago")
				g.Expect(recentPath).To(BeAnExistingFile())
			}
		})
	}
}

func TestTheCacheIsVerifiedAfterAStart(t *testing.T) {
	g := NewWithT(t)
	file := noise(1 << 20)
	server := newFileServer(t, file)
	dir := t.TempDir()
	cache := newCache(t, dir, quick(server.roots()))
	got, err := cache.Get(t.Context(), server.source(), nil)
	g.Expect(err).NotTo(HaveOccurred())
	got.Release()
	_, err = artifact.NewCache(dir, quick(server.roots()))
	g.Expect(fault.ReasonOf(err)).To(Equal(fault.CacheFailed), "one process at a time has the directory")
	g.Expect(cache.Close()).To(Succeed())

	cache = newCache(t, dir, quick(server.roots()))
	got, err = cache.Get(t.Context(), server.source(), nil)
	g.Expect(err).NotTo(HaveOccurred())
	got.Release()
	g.Expect(server.sent.Load()).To(BeEquivalentTo(len(file)), "a good file is not fetched again")
	g.Expect(cache.Close()).To(Succeed())

	g.Expect(os.Chmod(got.Path, 0o600)).To(Succeed())
	g.Expect(os.WriteFile(got.Path, make([]byte, len(file)), 0o600)).To(Succeed())
	cache = newCache(t, dir, quick(server.roots()))
	got, err = cache.Get(t.Context(), server.source(), nil)
	g.Expect(err).NotTo(HaveOccurred())
	defer got.Release()
	onDisk, err := os.ReadFile(got.Path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(bytes.Equal(onDisk, file)).To(BeTrue(), "a damaged file is fetched again")
}

func TestASymbolicLinkInTheCacheIsRefused(t *testing.T) {
	g := NewWithT(t)
	for _, place := range []string{"sha256/" + digestOf(nil), "partial/x.data", "sha256"} {
		dir := t.TempDir()
		g.Expect(os.MkdirAll(filepath.Join(dir, filepath.Dir(place)), 0o700)).To(Succeed())
		g.Expect(os.Symlink(t.TempDir(), filepath.Join(dir, place))).To(Succeed())
		_, err := artifact.NewCache(dir, artifact.Options{})
		g.Expect(fault.ReasonOf(err)).To(Equal(fault.CacheFailed), place)
	}
}
