// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/hostctl"
)

// bootMirror is an HTTPS server with the guest's kernel and its compressed initramfs, for who has the password.
type bootMirror struct {
	url string
	// kernel and initramfs are the digests of the decompressed files.
	kernel, initramfs infrav1.SHA256
	// sent counts the files that were sent.
	sent atomic.Int32
}

func serveBoot(t *testing.T) *bootMirror {
	t.Helper()
	g := NewWithT(t)
	dir := filepath.Dir(suite.image)
	m := &bootMirror{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "caplv" || password != "hunter2" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		m.sent.Add(1)
		http.ServeFile(w, r, filepath.Join(dir, filepath.Base(r.URL.Path)))
	}))
	t.Cleanup(server.Close)
	kernel, err := os.ReadFile(filepath.Join(dir, "vmlinuz"))
	g.Expect(err).NotTo(HaveOccurred())
	compressed, err := os.ReadFile(filepath.Join(dir, "initramfs.img"))
	g.Expect(err).NotTo(HaveOccurred())
	reader, err := gzip.NewReader(bytes.NewReader(compressed))
	g.Expect(err).NotTo(HaveOccurred(), "the test is about a compressed initramfs")
	initramfs, err := io.ReadAll(reader)
	g.Expect(err).NotTo(HaveOccurred())
	m.url, m.kernel, m.initramfs = server.URL, digestOf(kernel), digestOf(initramfs)
	return m
}

func digestOf(content []byte) infrav1.SHA256 {
	sum := sha256.Sum256(content)
	return infrav1.SHA256(hex.EncodeToString(sum[:]))
}

// bootFrom has the cluster's machines boot what a mirror has, or from their disks.
func (w *world) bootFrom(m *bootMirror) {
	w.t.Helper()
	lc := &infrav1.LibvirtCluster{}
	w.g.Expect(suite.cp.Client().Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "prod"}, lc)).To(Succeed())
	lc.Spec.BootArtifacts = nil
	if m != nil {
		args, err := os.ReadFile(filepath.Join(filepath.Dir(suite.image), "cmdline"))
		w.g.Expect(err).NotTo(HaveOccurred())
		lc.Spec.BootArtifacts = &infrav1.BootArtifacts{
			KernelArgs: strings.ReplaceAll(string(args), " ", "\n") + "caplv.test=direct\n",
			Source: infrav1.BootArtifactsSource{Type: infrav1.SourceTypeHTTPS, HTTPS: &infrav1.HTTPSBootArtifacts{
				HTTPSAccess: infrav1.HTTPSAccess{InsecureSkipTLSVerify: true, CredentialsSecretRef: &infrav1.CredentialsSecretReference{Name: "mirror"}},
				KernelURL:   infrav1.HTTPSURL(m.url + "/vmlinuz"), InitramfsURL: infrav1.HTTPSURL(m.url + "/initramfs.img"),
				BootArtifactDigests: infrav1.BootArtifactDigests{KernelSHA256: m.kernel, InitramfsSHA256: m.initramfs},
			}},
		}
	}
	w.g.Expect(suite.cp.Client().Update(w.t.Context(), lc)).To(Succeed())
}

// TestGuestsBootTheirClustersKernelAndReadTheirConfigFromADisk runs two machines one after the other on one host.
func TestGuestsBootTheirClustersKernelAndReadTheirConfigFromADisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.expectHost("True/HostReady")
	mirror := serveBoot(t)
	w.bootFrom(mirror)

	// Nobody has made the Secret yet.
	lm := w.libvirtMachine("uefi")
	lm.Spec.Domain.Firmware = infrav1.FirmwareUEFI
	w.createMachine(lm)
	w.expectMachine("uefi", infrav1.BootArtifactsStagedCondition, "False/"+infrav1.SecretNotFoundReason)
	w.create(&corev1.Secret{ObjectMeta: w.meta("mirror"), Data: map[string][]byte{"username": []byte("caplv"), "password": []byte("hunter2")}})
	w.checkDirectBoot("uefi", "UEFI", hostctl.SerialLog)
	w.g.Expect(w.eventReasons("LibvirtMachine", "uefi")).To(ContainElements(infrav1.SecretNotFoundReason, infrav1.RunningReason))
	w.g.Expect(w.expectHost("True/HostReady").Status.BootArtifacts).To(ConsistOf(
		And(HaveField("SHA256", mirror.kernel), HaveField("HostPath", "/var/lib/caplv/boot"), HaveField("StagedAt", Not(BeNil()))),
		And(HaveField("SHA256", mirror.initramfs), HaveField("ClusterName", "prod"))))
	w.deleteMachine("uefi")
	w.expectGone("uefi")
	const files = "cd /var/lib/caplv && find . -type f -printf '%P %m %U %i\\n' | sort"
	first := w.onHost(files)
	w.g.Expect(strings.Fields(first)).To(ContainElements(
		fmt.Sprintf("boot/%s/vmlinuz", mirror.kernel), fmt.Sprintf("boot/%s/initramfs.img", mirror.initramfs)), "the cluster's next machine needs them")

	w.createMachine(w.libvirtMachine("bios"))
	w.checkDirectBoot("bios", "BIOS", hostctl.SerialLog)
	w.g.Expect(w.onHost("stat -c %i /var/lib/caplv/boot/*/vmlinuz")).To(Equal(w.inodeOf(first, "vmlinuz")), "it was written twice")
	w.g.Expect(mirror.sent.Load()).To(Equal(int32(2)), "each file is fetched once")

	w.bootFrom(nil)
	w.deleteMachine("bios")
	w.expectGone("bios")
	w.expectListing(w.untouched)
	w.g.Eventually(func() []infrav1.HostBootArtifact { return w.expectHost("True/HostReady").Status.BootArtifacts }).Should(BeEmpty())
}

// TestASessionHostBootsItsClustersKernelAndIsRidOfIt deletes the LibvirtHost while its cluster wants the files still.
func TestASessionHostBootsItsClustersKernelAndIsRidOfIt(t *testing.T) {
	t.Parallel()
	w := newSessionWorld(t)
	w.expectHost("True/HostReady")
	w.bootFrom(serveBoot(t))
	w.create(&corev1.Secret{ObjectMeta: w.meta("mirror"), Data: map[string][]byte{"username": []byte("caplv"), "password": []byte("hunter2")}})
	lm := w.libvirtMachine("worker01")
	ephemeral(&lm.Spec)
	w.createMachine(lm)
	w.checkDirectBoot("worker01", "BIOS", hostctl.SessionSerialLog)
	w.deleteMachine("worker01")
	w.expectGone("worker01")
	w.g.Expect(w.onHost("ls /var/lib/caplv/boot")).NotTo(BeEmpty(), "the cluster's next machine needs them")
	w.g.Expect(suite.cp.Client().Delete(t.Context(), w.lhost)).To(Succeed())
	w.expectListing(w.untouched)
}

// inodeOf picks a file's inode out of a list of files.
func (w *world) inodeOf(list, name string) string {
	w.t.Helper()
	for line := range strings.Lines(list) {
		if fields := strings.Fields(line); strings.HasSuffix(fields[0], "/"+name) {
			return fields[len(fields)-1] + "\n"
		}
	}
	w.g.Expect(list).To(ContainSubstring(name))
	return ""
}

// checkDirectBoot checks that a machine's guest runs with the cluster's command line, and that it has read its config from the disk and applied it.
func (w *world) checkDirectBoot(name, firmware string, serialLog func(string) string) {
	w.t.Helper()
	lm := w.expectMachine(name, infrav1.MachineReadyCondition, "True/Running")
	w.g.Expect(condition(lm, infrav1.BootArtifactsStagedCondition)).To(Equal("True/" + infrav1.BootArtifactsStagedReason))
	report := w.reportFrom(serialLog(lm.Status.NodeName))
	w.g.Expect(report.Of("FW")).To(Equal([]string{firmware}))
	w.g.Expect(report.Of("CMDLINE")).To(HaveExactElements(ContainSubstring(" caplv.test=direct")), "the guest has another command line than the cluster's")
	w.g.Expect(report.Of("FWCFG")).To(Equal([]string{"none"}))
	config, err := w.host.Exec(w.t.Context(), "cat", "/run/caplv/"+lm.Status.NodeName+"/ignition.img")
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(len(config) % 4096).To(BeZero())
	w.g.Expect(report.Of("BLK")).To(HaveExactElements(HaveSuffix(fmt.Sprintf("bytes=%d sha256=%s", len(config), digestOf([]byte(config))))))
	w.g.Expect(report.Of("IGN")).To(ConsistOf(And(HavePrefix("version=3.2.0 "), HaveSuffix(" ok"))), "%q", report)
	w.g.Expect(report.Of("HOSTNAME")).To(Equal([]string{lm.Status.NodeName}), "%q", report)
	applied, err := report.Files()
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(strings.TrimSpace(applied["/etc/marker"].Content)).To(Equal("e2e"), "%q", report)
}
