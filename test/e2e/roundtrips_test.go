// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/test/bench/operator"
)

// virshIdle is longer than the operator keeps a virsh without work.
const virshIdle = 15 * time.Second

func TestRoundTripsAreFew(t *testing.T) {
	w := newWorld(t)
	scraper := w.scraper()
	w.expectHost("True/HostReady")
	lm := w.libvirtMachine("worker01")
	ephemeral(&lm.Spec)

	// The long-lived virsh of the host's probe ends when there is no work, so that the machine's own is counted.
	time.Sleep(virshIdle)
	before := w.execs(scraper)
	w.createMachine(lm)
	w.expectMachine("worker01", infrav1.MachineReadyCondition, "True/Running")
	provisioning := w.execs(scraper) - before
	t.Logf("provisioning took %v SSH execs", provisioning)
	w.g.Expect(provisioning).To(And(BeNumerically(">=", 2), BeNumerically("<=", 4)))

	// A later reconcile has to start another one.
	time.Sleep(virshIdle)
	before = w.execs(scraper)
	generation := w.observedReconciles(scraper)
	lm = w.machine("worker01")
	base := lm.DeepCopy()
	lm.Annotations = map[string]string{"e2e.caplv.io/touch": "1"}
	w.g.Expect(suite.cp.Client().Patch(t.Context(), lm, client.MergeFrom(base))).To(Succeed())
	w.g.Eventually(func() float64 { return w.observedReconciles(scraper) }, provisionTime, poll).Should(BeNumerically(">", generation))
	w.g.Eventually(func() float64 { return w.execs(scraper) - before }, 10*time.Second, poll).Should(BeNumerically("==", 1))
	w.g.Consistently(func() float64 { return w.execs(scraper) - before }, 3*time.Second, poll).Should(BeNumerically("==", 1))

	w.deleteMachine("worker01")
	w.expectGone("worker01")
}

func TestAnIdleHostSeesNoTraffic(t *testing.T) {
	w := newWorld(t)
	scraper := w.scraper()
	w.expectHost("True/HostReady")
	before := w.execs(scraper)
	w.g.Consistently(func() float64 { return w.execs(scraper) - before }, 20*time.Second, time.Second).Should(BeZero())
}

func (w *world) scraper() *operator.Scraper {
	w.t.Helper()
	s, err := suite.operator.Scraper(w.t.Context())
	w.g.Expect(err).NotTo(HaveOccurred())
	return s
}

// execs is how many SSH execs the operator has done on the test's host.
func (w *world) execs(scraper *operator.Scraper) float64 {
	w.t.Helper()
	return w.sum(scraper, "caplv_ssh_execs_total", "host", fmt.Sprintf("%s/host", w.namespace))
}

// observedReconciles is how many reconciles of LibvirtMachines have ended.
func (w *world) observedReconciles(scraper *operator.Scraper) float64 {
	w.t.Helper()
	return w.sum(scraper, "controller_runtime_reconcile_total", "controller", "libvirtmachine")
}

func (w *world) sum(scraper *operator.Scraper, family, label, value string) float64 {
	w.t.Helper()
	metrics, err := scraper.Scrape(w.t.Context())
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(metrics).To(HaveKey(family))
	return metrics.Sum(family, label, value)
}
