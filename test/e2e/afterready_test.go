// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

const (
	// seenTime is how long an event may take to become a condition on a busy machine. A look without an event comes after a minute.
	seenTime = 3 * time.Second
	// lostTime is the same for a host that falls silent: a keepalive has to fail, and a new connection.
	lostTime = 45 * time.Second
)

// after is a machine that has run, and what happens to it.
type after struct {
	*world
	name, node string
}

func (a *after) virsh(args ...string) string {
	a.t.Helper()
	out, err := a.host.Exec(a.t.Context(), append([]string{"virsh", "-q", "-c", "qemu:///system"}, args...)...)
	a.g.Expect(err).NotTo(HaveOccurred())
	return strings.TrimSpace(out)
}

func (a *after) shell(script string) {
	a.t.Helper()
	a.g.Expect(a.host.Run(a.t.Context(), "sh", "-ec", script)).To(Succeed())
}

// setPolicy changes spec.recoveryPolicy, as a user does.
func (a *after) setPolicy(policy infrav1.RecoveryPolicy) {
	a.t.Helper()
	lm := a.machine(a.name)
	base := lm.DeepCopy()
	lm.Spec.RecoveryPolicy = policy
	a.g.Expect(suite.cp.Client().Patch(a.t.Context(), lm, client.MergeFrom(base))).To(Succeed())
}

// sees waits until Ready is as wanted, with a message that has these words, and prints how long that took.
func (a *after) sees(what, want, words string, within time.Duration) {
	a.t.Helper()
	start := time.Now()
	a.g.Eventually(func(g Gomega) {
		lm := a.machine(a.name)
		g.Expect(condition(lm, infrav1.MachineReadyCondition)).To(Equal(want), "conditions: %v", summary(lm))
		g.Expect(conditions.GetMessage(lm, infrav1.MachineReadyCondition)).To(ContainSubstring(words))
	}, within, 10*time.Millisecond).Should(Succeed(), what)
	a.t.Logf("%s: %s after %d ms", what, want, time.Since(start).Milliseconds())
}

// tells waits until status.recovery has this many restarts, and Events have these reasons: both come after the conditions.
func (a *after) tells(restarts int32, reasons ...string) {
	a.t.Helper()
	a.g.Eventually(func(g Gomega) {
		g.Expect(a.machine(a.name).Status.Recovery).To(HaveValue(HaveField("Restarts", restarts)))
		g.Expect(a.eventReasons("LibvirtMachine", a.name)).To(ContainElements(reasons))
	}, seenTime, poll).Should(Succeed())
}

// stays checks that nobody mends what is to be left alone.
func (a *after) stays(want string) {
	a.t.Helper()
	a.g.Consistently(func() string { return condition(a.machine(a.name), infrav1.MachineReadyCondition) }, 2*time.Second, poll).Should(Equal(want))
}

const running = "True/" + infrav1.RunningReason

// TestWhatHappensToARunningMachineIsSeen has one guest suffer whatever can happen to a machine on its host.
func TestWhatHappensToARunningMachineIsSeen(t *testing.T) {
	w := newWorld(t)
	w.expectHost("True/HostReady")
	lm := w.libvirtMachine("worker01")
	ephemeral(&lm.Spec)
	lm.Spec.RootDisk.EphemeralPoolSize = "64M"
	lm.Spec.AdditionalDisks = []infrav1.AdditionalDiskSpec{dataDisk("data", "16Mi", "virtio")}
	w.createMachine(lm)
	lm = w.expectMachine("worker01", infrav1.MachineReadyCondition, running)
	w.g.Expect(lm.Spec.RecoveryPolicy).To(Equal(infrav1.RecoveryPolicyNone), "whoever looks after the host wins by default")
	a := &after{world: w, name: "worker01", node: lm.Status.NodeName}

	for _, step := range []struct {
		name string
		do   func(*after)
	}{
		{"its storage is full", (*after).storageIsFull},
		{"virsh suspend", (*after).suspended},
		{"virsh destroy, with the policy Restart", (*after).destroyed},
		{"kill -9 of QEMU", (*after).killed},
		{"a remediation", (*after).remediated},
		{"a restart of libvirtd", (*after).daemonRestarted},
		{"virsh undefine", (*after).undefined},
		{"the host falls silent", (*after).hostSilent},
	} {
		passed := t.Run(step.name, func(t *testing.T) {
			one := *w
			one.t, one.g = t, NewWithT(t)
			a.world = &one
			start := time.Now()
			step.do(a)
			t.Logf("took %s", time.Since(start).Round(time.Second))
		})
		if !passed {
			return
		}
	}
	w.deleteMachine("worker01")
	w.expectGone("worker01")
	w.expectListing(w.untouched)
}

// storageIsFull fills the tmpfs before the guest has come to its data disk, which it writes to while it boots.
func (a *after) storageIsFull() {
	fill := "/run/caplv/" + a.node + "/fill"
	a.shell("dd if=/dev/zero of=" + fill + " bs=64k 2>/dev/null || true")
	a.g.Eventually(func() string { return a.virsh("domstate", "--reason", a.node) }, bootTime, 100*time.Millisecond).Should(Equal("paused (I/O error)"))
	a.sees("full storage", "False/"+infrav1.NoSpaceReason, "make room there", seenTime)
	a.setPolicy(infrav1.RecoveryPolicyRestart)
	a.sees("the policy Restart, and no room", "False/"+infrav1.NoSpaceReason, "is resumed when storage pool "+a.node+" has 16 MiB (now 0)", provisionTime)
	a.shell("rm " + fill)
	a.sees("room", running, "", provisionTime)
	a.tells(1, infrav1.NoSpaceReason, "Resumed")
	a.g.Eventually(func() (string, error) {
		return a.host.Exec(a.t.Context(), "cat", "/var/log/libvirt/qemu/"+a.node+"-serial.log")
	}, bootTime, time.Second).Should(MatchRegexp(`DISK-IO \w+ ok`), "the guest's write was not finished")
}

func (a *after) suspended() {
	a.virsh("suspend", a.node)
	a.sees("virsh suspend", "False/"+infrav1.DomainPausedReason, "virsh resume "+a.node, seenTime)
	a.stays("False/" + infrav1.DomainPausedReason)
	a.virsh("resume", a.node)
	a.sees("virsh resume", running, "", seenTime)
}

func (a *after) destroyed() {
	a.virsh("destroy", a.node)
	// One attempt has resumed the machine a moment ago.
	a.sees("virsh destroy", "False/"+infrav1.DomainNotRunningReason, "which is attempt 2 of 5", seenTime)
	a.sees("the policy Restart", running, "", time.Minute)
	a.tells(2, infrav1.DomainNotRunningReason, "Restarted")
	a.setPolicy(infrav1.RecoveryPolicyNone)
}

func (a *after) killed() {
	a.shell("pkill -9 -x qemu-system-x86")
	a.sees("kill -9", "False/"+infrav1.DomainCrashedReason, "/var/log/libvirt/qemu/"+a.node+".log", seenTime)
	a.stays("False/" + infrav1.DomainCrashedReason)
	a.virsh("start", a.node)
	a.sees("virsh start", running, "", seenTime)
}

// remediated has the domain power-cycled as a MachineHealthCheck asks, while its guest runs.
func (a *after) remediated() {
	pid := func() string {
		out, err := a.host.Exec(a.t.Context(), "cat", "/run/libvirt/qemu/"+a.node+".pid")
		a.g.Expect(err).NotTo(HaveOccurred())
		return out
	}
	before, start := pid(), time.Now()
	m := &clusterv1.Machine{}
	a.g.Expect(suite.cp.Client().Get(a.t.Context(), client.ObjectKey{Namespace: a.namespace, Name: a.name}, m)).To(Succeed())
	rem := &infrav1.LibvirtRemediation{ObjectMeta: a.meta(a.name)}
	rem.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: m.Name, UID: m.UID}}
	a.create(rem)
	a.g.Eventually(func(g Gomega) {
		g.Expect(suite.cp.Client().Get(a.t.Context(), client.ObjectKeyFromObject(rem), rem)).To(Succeed())
		g.Expect(conditions.GetReason(rem, infrav1.RemediatingCondition)).To(Equal(infrav1.WaitingForHealthReason), conditions.GetMessage(rem, infrav1.RemediatingCondition))
	}, provisionTime, poll).Should(Succeed())
	a.t.Logf("power-cycled after %s", time.Since(start).Round(10*time.Millisecond))
	a.g.Expect(pid()).NotTo(Equal(before), "it is another QEMU")
	a.sees("the power cycle", running, "", seenTime)
	a.g.Expect(a.eventReasons("LibvirtMachine", a.name)).To(ContainElement("RestartCompleted"))
	a.g.Expect(suite.cp.Client().Delete(a.t.Context(), rem)).To(Succeed())
	a.g.Eventually(func() map[string]string { return a.machine(a.name).Annotations }, seenTime, poll).ShouldNot(HaveKey(infrav1.RestartRequestAnnotation))
}

func (a *after) daemonRestarted() {
	a.shell("systemctl restart libvirtd")
	a.sees("libvirtd's restart", running, "", provisionTime)
	// The stream is opened anew within two seconds. A machine that ran all along is not touched.
	time.Sleep(2 * seenTime)
	a.virsh("suspend", a.node)
	a.sees("virsh suspend, after libvirtd's restart", "False/"+infrav1.DomainPausedReason, "", seenTime)
	a.virsh("resume", a.node)
	a.sees("virsh resume, after libvirtd's restart", running, "", seenTime)
}

func (a *after) undefined() {
	a.shell("virsh -c qemu:///system dumpxml --inactive " + a.node + " >/root/machine.xml")
	a.virsh("undefine", a.node)
	a.sees("virsh undefine while it runs", running, "is not defined there any more", seenTime)
	a.virsh("destroy", a.node)
	a.sees("virsh destroy, undefined", "False/"+infrav1.DomainMissingReason, "delete the machine", seenTime)
	a.virsh("define", "/root/machine.xml")
	a.sees("virsh define", "False/"+infrav1.DomainNotRunningReason, "virsh start "+a.node, seenTime)
	a.virsh("undefine", a.node)
	a.sees("virsh undefine while it is shut off", "False/"+infrav1.DomainMissingReason, "delete the machine", seenTime)
	a.shell("virsh -c qemu:///system define /root/machine.xml; virsh -c qemu:///system start " + a.node + "; rm /root/machine.xml")
	a.sees("virsh define and start", running, "", seenTime)
}

// hostSilent takes the host's network away: no connection is closed.
func (a *after) hostSilent() {
	setLink := func(state string) error { return a.host.InNetwork(a.t.Context(), "ip", "link", "set", "br0", state) }
	a.g.Expect(setLink("down")).To(Succeed())
	a.t.Cleanup(func() { _ = setLink("up") })
	start := time.Now()
	a.g.Eventually(func() string { return condition(a.machine(a.name), infrav1.MachineReadyCondition) }, lostTime, 50*time.Millisecond).
		Should(BeElementOf("Unknown/"+infrav1.UnreachableReason, "Unknown/"+infrav1.TimeoutReason))
	a.t.Logf("a silent host: seen after %s", time.Since(start).Round(100*time.Millisecond))
	a.g.Expect(condition(a.machine(a.name), infrav1.DomainRunningCondition)).To(Equal("Unknown/" + infrav1.StateUnknownReason))
	a.g.Expect(setLink("up")).To(Succeed())
	a.sees("the network's return", running, "", provisionTime)
}
