// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/test/bench/host"
)

const (
	provisionTime = 3 * time.Minute
	bootTime      = 4 * time.Minute
	poll          = 300 * time.Millisecond
)

// cleanupContext outlives the test's own context, which ends before its cleanups run.
func cleanupContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func (w *world) machine(name string) *infrav1.LibvirtMachine {
	lm := &infrav1.LibvirtMachine{}
	w.g.Expect(suite.cp.Client().Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, lm)).To(Succeed())
	return lm
}

// condition is STATUS/REASON of a condition, for matchers that print well.
func condition(o conditions.Getter, conditionType string) string {
	c := conditions.Get(o, conditionType)
	if c == nil {
		return "absent"
	}
	return string(c.Status) + "/" + c.Reason
}

func (w *world) expectMachine(name, conditionType, want string) *infrav1.LibvirtMachine {
	w.t.Helper()
	var lm *infrav1.LibvirtMachine
	w.g.Eventually(func(g Gomega) {
		lm = &infrav1.LibvirtMachine{}
		g.Expect(suite.cp.Client().Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, lm)).To(Succeed())
		g.Expect(condition(lm, conditionType)).To(Equal(want), "conditions: %v", summary(lm))
		if want == "True/"+infrav1.RunningReason {
			// Cluster API's patch helper writes conditions before everything else.
			g.Expect(lm.Spec.ProviderID).NotTo(BeEmpty())
			g.Expect(lm.Status.DomainState).To(Equal("running"))
		}
	}, provisionTime, poll).Should(Succeed())
	return lm
}

// replaceHost deletes the LibvirtHost and creates another one of its name.
func (w *world) replaceHost(lh *infrav1.LibvirtHost) {
	w.t.Helper()
	w.g.Expect(suite.cp.Client().Delete(w.t.Context(), w.lhost)).To(Succeed())
	w.g.Eventually(func() bool {
		return apierrors.IsNotFound(suite.cp.Client().Get(w.t.Context(), client.ObjectKeyFromObject(w.lhost), &infrav1.LibvirtHost{}))
	}, provisionTime, poll).Should(BeTrue(), "the LibvirtHost does not go")
	w.create(lh)
	w.lhost = lh
}

func (w *world) fetchHost() *infrav1.LibvirtHost {
	lh := &infrav1.LibvirtHost{}
	w.g.Expect(suite.cp.Client().Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "host"}, lh)).To(Succeed())
	return lh
}

func (w *world) expectHost(want string) *infrav1.LibvirtHost {
	w.t.Helper()
	var lh *infrav1.LibvirtHost
	w.g.Eventually(func(g Gomega) {
		lh = &infrav1.LibvirtHost{}
		g.Expect(suite.cp.Client().Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "host"}, lh)).To(Succeed())
		g.Expect(condition(lh, infrav1.HostReadyCondition)).To(Equal(want), "conditions: %v", summary(lh))
	}, provisionTime, poll).Should(Succeed())
	return lh
}

func summary(o conditions.Getter) []string {
	var out []string
	for _, c := range o.GetConditions() {
		out = append(out, c.Type+"="+string(c.Status)+"/"+c.Reason+": "+c.Message)
	}
	return out
}

// expectGone waits until Machine and LibvirtMachine are gone.
func (w *world) expectGone(name string) {
	w.t.Helper()
	w.g.Eventually(func(g Gomega) {
		lm := &infrav1.LibvirtMachine{}
		err := suite.cp.Client().Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, lm)
		g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "LibvirtMachine: %v, conditions: %v", err, summary(lm))
		err = suite.cp.Client().Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, &clusterv1.Machine{})
		g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "Machine: %v", err)
	}, provisionTime, poll).Should(Succeed())
}

// listing is everything on the host that matters.
func (w *world) listing() string {
	w.t.Helper()
	out, err := w.host.Listing(w.t.Context())
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(out).NotTo(BeEmpty())
	return out
}

// expectListing waits until the host is as it was; virsh and ssh processes of the operator take a moment to end.
func (w *world) expectListing(before string) {
	w.t.Helper()
	w.g.Eventually(func() string { return difference(before, w.listing()) }, 30*time.Second, time.Second).Should(BeEmpty())
}

// difference lists the lines that are gone (-) and new (+).
func difference(before, after string) string {
	var out strings.Builder
	old, current := strings.Split(before, "\n"), strings.Split(after, "\n")
	for _, line := range old {
		if !slices.Contains(current, line) {
			out.WriteString("- " + line + "\n")
		}
	}
	for _, line := range current {
		if !slices.Contains(old, line) {
			out.WriteString("+ " + line + "\n")
		}
	}
	return out.String()
}

// fullReport waits for the guest's report on its serial console.
func (w *world) fullReport(node string) host.Report {
	w.t.Helper()
	return w.reportFrom("/var/log/libvirt/qemu/" + node + "-serial.log")
}

// reportFrom waits for the report in a file on the host.
func (w *world) reportFrom(path string) host.Report {
	w.t.Helper()
	var text string
	w.g.Eventually(func(g Gomega) {
		var err error
		text, err = w.host.Exec(w.t.Context(), "cat", path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(text).To(ContainSubstring(host.Complete))
	}, bootTime, time.Second).Should(Succeed())
	return host.ReadReport(text)
}

// report waits for the guest's report and returns the last line of each first word.
func (w *world) report(node string) map[string]string {
	w.t.Helper()
	return lastLines(w.fullReport(node))
}

func lastLines(report host.Report) map[string]string {
	lines := map[string]string{}
	for _, line := range report {
		word, _, _ := strings.Cut(line, " ")
		word, _, _ = strings.Cut(word, "=")
		lines[word] = line
	}
	return lines
}

// explain prints what helps to understand a failure.
func (w *world) explain() {
	ctx := cleanupContext(w.t)
	out, err := suite.cp.Kubectl(ctx, "-n", w.namespace, "get", "clusters,machines,libvirtclusters,libvirthosts,libvirtmachines,events", "-o", "wide")
	w.t.Logf("objects (%v):\n%s", err, out)
	out, err = w.host.Listing(ctx)
	w.t.Logf("host (%v):\n%s", err, out)
	w.t.Logf("log of the operator: %s", suite.operator.LogPath())
}

// deleteEverything leaves no object of the test behind that would keep the operator busy.
func (w *world) deleteEverything() {
	w.deleteMachines()
	ctx := cleanupContext(w.t)
	c := suite.cp.Client()
	_ = c.DeleteAllOf(ctx, &infrav1.LibvirtHost{}, client.InNamespace(w.namespace))
}

// deleteMachines deletes the machines, and gives them up when that takes long.
func (w *world) deleteMachines() {
	ctx := cleanupContext(w.t)
	c := suite.cp.Client()
	_ = c.DeleteAllOf(ctx, &clusterv1.Machine{}, client.InNamespace(w.namespace))
	_ = c.DeleteAllOf(ctx, &infrav1.LibvirtMachine{}, client.InNamespace(w.namespace))
	machines := &infrav1.LibvirtMachineList{}
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		if err := c.List(ctx, machines, client.InNamespace(w.namespace)); err != nil || len(machines.Items) == 0 {
			break
		}
		time.Sleep(poll)
	}
	for i := range machines.Items {
		lm := &machines.Items[i]
		base := lm.DeepCopy()
		lm.Finalizers = nil
		_ = c.Patch(ctx, lm, client.MergeFrom(base))
	}
}

// events lists REASONs of the Events about an object.
func (w *world) eventReasons(kind, name string) []string {
	w.t.Helper()
	out, err := suite.cp.Kubectl(w.t.Context(), "-n", w.namespace, "get", "events", "-o",
		`jsonpath={range .items[?(@.involvedObject.kind=="`+kind+`")]}{.involvedObject.name}{" "}{.reason}{"\n"}{end}`)
	w.g.Expect(err).NotTo(HaveOccurred())
	var reasons []string
	for line := range strings.SplitSeq(out, "\n") {
		if n, reason, ok := strings.Cut(line, " "); ok && n == name {
			reasons = append(reasons, reason)
		}
	}
	return reasons
}
