// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package artifact_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/artifact"
	"github.com/caplv/caplv/operator/artifact/fault"
	"github.com/caplv/caplv/operator/artifact/fetch"
)

// What a child process is told by.
const (
	childURL   = "ARTIFACT_TEST_URL"
	childDir   = "ARTIFACT_TEST_DIR"
	childLimit = "ARTIFACT_TEST_FILE_LIMIT"
)

// TestMain fetches, where this process is the child of a test, with the environment's certificates and proxies. The child prints the file's digest or
// the failure's reason, and the most memory in KiB that it had.
func TestMain(m *testing.M) {
	if os.Getenv(childURL) == "" {
		os.Exit(m.Run())
	}
	if limit, err := strconv.ParseUint(os.Getenv(childLimit), 10, 63); err == nil {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
			panic(err)
		}
	}
	cache, err := artifact.NewCache(os.Getenv(childDir), quick(nil))
	if err != nil {
		panic(err)
	}
	before := peak()
	file, err := cache.Get(context.Background(), artifact.Source{Location: fetch.HTTPS{URL: os.Getenv(childURL)}}, nil)
	if err != nil {
		fmt.Println(fault.ReasonOf(err), err)
		os.Exit(1)
	}
	fmt.Println(file.SHA256, peak()-before)
}

func peak() int64 {
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.SplitSeq(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n
		}
	}
	panic("no VmHWM in /proc/self/status")
}

// child returns a process that fetches from a server into a directory.
func child(t *testing.T, server *httptest.Server, dir string, env ...string) *exec.Cmd {
	t.Helper()
	roots := filepath.Join(t.TempDir(), "ca.pem")
	pemBytes := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	NewWithT(t).Expect(os.WriteFile(roots, pemBytes, 0o600)).To(Succeed())
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(append(os.Environ(), "SSL_CERT_FILE="+roots, childURL+"="+server.URL+"/f", childDir+"="+dir), env...)
	command.Stderr = os.Stderr
	return command
}

func TestAProcessThatIsKilledLeavesNothingHalfAndTheNextOneGoesOn(t *testing.T) {
	for name, compress := range compressions {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			file := noise(3 << 20)
			sent := compress(file)
			server := newFileServer(t, sent)
			half := make(chan struct{})
			server.fault = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Header.Get("Range") != "" {
					return false
				}
				w.Header().Set("ETag", server.etag)
				w.Header().Set("Content-Length", strconv.Itoa(len(sent)))
				_, _ = w.Write(sent[:len(sent)/2])
				flush(w)
				time.Sleep(1200 * time.Millisecond)
				_, _ = w.Write(sent[len(sent)/2 : len(sent)/2+10])
				flush(w)
				close(half)
				<-r.Context().Done()
				return true
			}
			dir := t.TempDir()
			first := child(t, server.Server, dir)
			g.Expect(first.Start()).To(Succeed())
			<-half
			g.Eventually(func() ([]string, error) { return filepath.Glob(dir + "/partial/*.json") }, "5s").ShouldNot(BeEmpty())
			g.Expect(first.Process.Kill()).To(Succeed())
			g.Expect(first.Wait()).NotTo(Succeed())
			g.Expect(filepath.Glob(dir + "/sha256/*")).To(BeEmpty())

			out, err := child(t, server.Server, dir).Output()
			g.Expect(err).NotTo(HaveOccurred(), string(out))
			g.Expect(string(out)).To(HavePrefix(digestOf(file)))
			g.Expect(server.ranges.Load()).To(BeEquivalentTo(1))
			g.Expect(server.sent.Load()).To(BeNumerically("<=", len(sent)/2+64), "the next process transfers only the rest")
			g.Expect(filepath.Glob(dir + "/partial/*")).To(BeEmpty())
		})
	}
}

func TestAnUnfinishedFileThatWasDamagedIsFetchedAnew(t *testing.T) {
	g := NewWithT(t)
	file := noise(1 << 20)
	server := newFileServer(t, file)
	server.cutAt, server.cuts = len(file)/2, 1
	options := quick(server.roots())
	options.Fetch.Retries = -1
	dir := t.TempDir()
	cache := newCache(t, dir, options)
	_, err := cache.Get(t.Context(), server.source(), nil)
	g.Expect(fault.ReasonOf(err)).To(Equal(fault.Unreachable))
	partial, err := filepath.Glob(dir + "/partial/*.data")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(partial).To(HaveLen(1))
	damaged, err := os.OpenFile(partial[0], os.O_WRONLY, 0)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = damaged.WriteAt(make([]byte, 4096), 1000)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(damaged.Close()).To(Succeed())

	got, err := cache.Get(t.Context(), server.source(), nil)
	g.Expect(err).NotTo(HaveOccurred())
	defer got.Release()
	g.Expect(got.SHA256).To(Equal(digestOf(file)))
}

func TestAFullFileSystemHasItsReasonAndLeavesNothing(t *testing.T) {
	g := NewWithT(t)
	server := newFileServer(t, gzipped(make([]byte, 8<<20)))
	dir := t.TempDir()
	out, err := child(t, server.Server, dir, childLimit+"=1048576").Output()
	g.Expect(err).To(HaveOccurred())
	g.Expect(string(out)).To(HavePrefix(string(fault.CacheFull)))
	g.Expect(filepath.Glob(dir + "/*/*")).To(BeEmpty())
}

// endless is an answer of so many bytes that no test needs to keep.
func endless(size int64) http.HandlerFunc {
	block := noise(1 << 20)
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		for range size / int64(len(block)) {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}
}

func TestMemoryDoesNotGrowWithTheFile(t *testing.T) {
	g := NewWithT(t)
	const size, most = 1 << 30, 48 << 10
	server := httptest.NewTLSServer(endless(size))
	t.Cleanup(server.Close)
	began := time.Now()
	out, err := child(t, server, t.TempDir()).Output()
	g.Expect(err).NotTo(HaveOccurred(), string(out))
	fields := strings.Fields(string(out))
	g.Expect(fields).To(HaveLen(2))
	kib, err := strconv.Atoi(fields[1])
	g.Expect(err).NotTo(HaveOccurred())
	t.Logf("1 GiB took %s and %d KiB of memory, with the server on the same %d processors", time.Since(began), kib, runtime.NumCPU())
	g.Expect(kib).To(BeNumerically("<", most))
}

func TestTheEnvironmentsProxyIsUsed(t *testing.T) {
	g := NewWithT(t)
	server := newFileServer(t, []byte("x"))
	u, err := url.Parse(server.URL)
	g.Expect(err).NotTo(HaveOccurred())
	var asked string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Method + " " + r.Host
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(proxy.Close)
	// A proxy is not used for addresses of this machine, so the name is one that only the proxy could know.
	out, err := child(t, server.Server, t.TempDir(), childURL+"=https://mirror.test:"+u.Port()+"/f", "HTTPS_PROXY="+proxy.URL).Output()
	g.Expect(err).To(HaveOccurred())
	g.Expect(string(out)).To(HavePrefix(string(fault.Unreachable)))
	g.Expect(asked).To(Equal("CONNECT mirror.test:" + u.Port()))
}
