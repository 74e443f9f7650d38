// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// killAt kills the operator as soon as its log says that it applies a step to the domain. It returns false when the
// machine got past the step before the kill.
func killAt(w *world, step, node string) {
	w.t.Helper()
	path := suite.operator.LogPath()
	deadline := time.Now().Add(provisionTime)
	for time.Now().Before(deadline) {
		log, err := os.ReadFile(path)
		w.g.Expect(err).NotTo(HaveOccurred())
		for line := range strings.SplitSeq(string(log), "\n") {
			if strings.Contains(line, fmt.Sprintf(`"step":%q`, step)) && strings.Contains(line, fmt.Sprintf(`"domain":%q`, node)) {
				suite.operator.Kill()
				return
			}
		}
		time.Sleep(time.Millisecond)
	}
	w.t.Fatalf("the operator did not come to step %s", step)
}

func TestAnOperatorThatIsKilledConverges(t *testing.T) {
	for _, pool := range []struct {
		name    string
		prepare func(*infrav1.LibvirtMachineSpec)
		create  []string
		remove  []string
	}{
		{"storage pool", func(*infrav1.LibvirtMachineSpec) {},
			[]string{"DefineDomain", "CreateVolume", "StartDomain"}, []string{"DestroyDomain", "DeleteVolume", "UndefineDomain"}},
		{"tmpfs", ephemeral,
			[]string{"StageDirectory", "DefinePool", "CreateVolume"}, []string{"DestroyDomain", "UndefinePool", "RemoveDirectory"}},
	} {
		t.Run(pool.name, func(t *testing.T) {
			w := newWorld(t)
			w.expectHost("True/HostReady")
			for i := range pool.create {
				t.Logf("killing at %s and at %s", pool.create[i], pool.remove[i])
				name := fmt.Sprintf("worker%d", i)
				lm := w.libvirtMachine(name)
				pool.prepare(&lm.Spec)
				w.createMachine(lm)
				killAt(w, pool.create[i], w.nodeName(name))
				w.g.Expect(suite.operator.Start(t.Context())).To(Succeed())
				w.expectMachine(name, infrav1.MachineReadyCondition, "True/Running")
				processes, err := w.host.Exec(t.Context(), "sh", "-c", "pgrep -c qemu-system || true")
				w.g.Expect(err).NotTo(HaveOccurred())
				w.g.Expect(strings.TrimSpace(processes)).To(Equal("1"))

				w.deleteMachine(name)
				killAt(w, pool.remove[i], w.nodeName(name))
				w.g.Expect(suite.operator.Start(t.Context())).To(Succeed())
				w.expectGone(name)
				w.expectListing(w.untouched)
			}
		})
	}
}
