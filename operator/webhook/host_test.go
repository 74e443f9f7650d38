// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

func TestHosts(t *testing.T) {
	check(t, hostYAML, []row{
		{"the smallest host is accepted", nil, nil, nil},
		{"a port out of range is refused", spec("uri"), "qemu+ssh://caplv@host.example.com:70000/system",
			[]string{`spec.uri: Invalid value: "qemu+ssh://caplv@host.example.com:70000/system"`, "between 1 and 65535"}},
		{"an IPv6 address that is none is refused", spec("uri"), "qemu+ssh://caplv@[2001:db8:::1]/system",
			[]string{`spec.uri: Invalid value: "qemu+ssh://caplv@[2001:db8:::1]/system"`, "must read qemu+ssh://USER@HOST"}},
		{"a Secret in another namespace cannot be named", spec("secretRef", "name"), "other/key",
			[]string{`spec.secretRef.name: Invalid value: "other/key"`, "no Secret can have this name"}},
		{"firmware with its template is accepted", spec("firmwarePath"), "/usr/share/OVMF/OVMF_CODE.fd", nil},
		{"a template without firmware is refused", spec("nvramTemplatePath"), "/usr/share/OVMF/OVMF_VARS.fd",
			[]string{`spec.nvramTemplatePath: Invalid value: "/usr/share/OVMF/OVMF_VARS.fd"`, "set firmwarePath too"}},
		{"a path with .. is refused", spec("firmwarePath"), "/usr/share/../OVMF_CODE.fd",
			[]string{`spec.firmwarePath: Invalid value: "/usr/share/../OVMF_CODE.fd"`, "write /usr/OVMF_CODE.fd"}},
		{"a path with a line break is refused", spec("firmwarePath"), "/usr/share/a\nb",
			[]string{`spec.firmwarePath: Invalid value: "/usr/share/a\nb"`, "not printable"}},
	})
}

// warnings collects the warnings of the API server.
type warnings struct{ texts []string }

func (w *warnings) HandleWarningHeader(_ int, _, text string) { w.texts = append(w.texts, text) }

// take returns what was collected since it was called last.
func (w *warnings) take() []string {
	texts := w.texts
	w.texts = nil
	return texts
}

func warningClient(g Gomega) (client.Client, *warnings) {
	config, w := suite.cp.RESTConfig(), &warnings{}
	config.WarningHandler = w
	c, err := client.New(config, client.Options{Scheme: suite.cp.Client().Scheme()})
	g.Expect(err).NotTo(HaveOccurred())
	return c, w
}

func TestHostsThatAreAllowedAndSeldomWanted(t *testing.T) {
	g := NewWithT(t)
	c, w := warningClient(g)
	ns := namespace(t)
	lh := typed(g, hostYAML, &infrav1.LibvirtHost{}, ns, "h")
	fingerprint := lh.Spec.HostKeyFingerprint
	g.Expect(c.Create(t.Context(), lh.DeepCopy(), client.DryRunAll)).To(Succeed())
	g.Expect(w.take()).To(BeEmpty())

	lh.Spec.HostKeyFingerprint, lh.Spec.VirtType = "", infrav1.VirtTypeQEMU
	g.Expect(c.Create(t.Context(), lh)).To(Succeed())
	g.Expect(w.take()).To(ConsistOf(HavePrefix("spec.hostKeyFingerprint is not set"), HavePrefix("spec.virtType is qemu")))

	lh.Spec.HealthCheckIntervalSeconds = new(int32(60))
	g.Expect(c.Update(t.Context(), lh)).To(Succeed())
	g.Expect(w.take()).To(BeEmpty(), "nothing new to warn about")
	lh.Spec.HostKeyFingerprint = fingerprint
	g.Expect(c.Update(t.Context(), lh)).To(Succeed())
	g.Expect(w.take()).To(BeEmpty())
	lh.Spec.HostKeyFingerprint = ""
	g.Expect(c.Update(t.Context(), lh)).To(Succeed())
	g.Expect(w.take()).To(ConsistOf(HavePrefix("spec.hostKeyFingerprint is not set")))
}

func TestAHostWithMachinesIsDeletedWithAWarning(t *testing.T) {
	g := NewWithT(t)
	c, w := warningClient(g)
	ns := namespace(t)
	g.Expect(c.Create(t.Context(), typed(g, hostYAML, &infrav1.LibvirtHost{}, ns, "host"))).To(Succeed())
	lh := typed(g, hostYAML, &infrav1.LibvirtHost{}, ns, "host")
	g.Expect(c.Delete(t.Context(), lh, client.DryRunAll)).To(Succeed())
	g.Expect(w.take()).To(BeEmpty())

	// One of them came first, the others wait as they would behind the claim; the cache sees them a moment later.
	for i := range 7 {
		lm := typed(g, machineYAML, &infrav1.LibvirtMachine{}, ns, fmt.Sprintf("m%d", i))
		lm.Finalizers = []string{infrav1.MachineFinalizer}
		g.Expect(c.Create(t.Context(), lm)).To(Succeed())
		g.Expect(c.Delete(t.Context(), lm)).To(Succeed())
	}
	g.Eventually(func() []string {
		g.Expect(c.Delete(t.Context(), lh, client.DryRunAll)).To(Succeed())
		return w.take()
	}, 10*time.Second, 50*time.Millisecond).Should(ConsistOf(
		"LibvirtHost host stays until its machines are gone; delete these LibvirtMachines too: m0, m1, m2, m3, m4, and 2 more"))
	g.Expect(c.Delete(t.Context(), lh)).To(Succeed(), "a warning is all")
}
