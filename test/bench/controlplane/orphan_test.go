// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// runAsVictim makes the test binary start a control plane in the given directory and wait to be killed.
const runAsVictim = "CAPLV_TEST_CONTROL_PLANE_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(runAsVictim); dir != "" {
		if _, err := Start(context.Background(), Options{Dir: dir, WithoutCoreManager: true}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("started")
		select {}
	}
	os.Exit(m.Run())
}

// processesIn returns the command lines that mention a directory.
func processesIn(dir string) ([]string, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, f := range files {
		// A process may end between the two calls.
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), dir) {
			found = append(found, strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return found, nil
}

func TestNothingOutlivesAKilledTestRun(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	self, err := os.Executable()
	g.Expect(err).NotTo(HaveOccurred())
	victim := exec.Command(self)
	// What envtest leaves in the temporary directory goes with the rest.
	victim.Env = append(os.Environ(), runAsVictim+"="+dir, "TMPDIR="+dir)
	victim.Stderr = os.Stderr
	stdout, err := victim.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(victim.Start()).To(Succeed())
	t.Cleanup(func() { _ = victim.Process.Kill() })

	line, err := bufio.NewReader(stdout).ReadString('\n')
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(line).To(Equal("started\n"))
	g.Expect(processesIn(dir)).To(HaveLen(2), "etcd and kube-apiserver")

	g.Expect(victim.Process.Kill()).To(Succeed())
	_ = victim.Wait() // It was killed, so this is an error.
	g.Eventually(func() ([]string, error) { return processesIn(dir) }, soon).Should(BeEmpty())
}
