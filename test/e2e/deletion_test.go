// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// on runs a script as root on the host. $v is virsh, $n the machine's name.
func (w *world) on(machine, script string) string {
	w.t.Helper()
	out, err := w.host.Exec(w.t.Context(), "sh", "-ec", "v='virsh -q -c qemu:///system'; n="+w.nodeName(machine)+"; "+script)
	w.g.Expect(err).NotTo(HaveOccurred())
	return strings.TrimSpace(out)
}

// operatorsOwn are the lines of a listing that are about the operator's virsh, which ends when it has had no work for a while.
var operatorsOwn = regexp.MustCompile(`(?m)^(virsh|bash|sh|.* /dev/shm/caplv\.[^ /]+.*|/run/user/[0-9]+/caplv\.[^ /]+/.*)$\n?`)

// expectNothingLeft is expectListing for in between: it does not wait until the operator has left as well.
func (w *world) expectNothingLeft() {
	w.t.Helper()
	w.g.Eventually(func() string {
		return difference(operatorsOwn.ReplaceAllString(w.untouched, ""), operatorsOwn.ReplaceAllString(w.listing(), ""))
	}, 10*time.Second, poll).Should(BeEmpty())
}

// onDisks puts the root disk into a storage pool that a test may spoil, because the base image is in another one.
func onDisks(s *infrav1.LibvirtMachineSpec) {
	s.RootDisk.StoragePool, s.RootDisk.BaseImagePool = "disks", "default"
}

// withDisks prepares the pool for onDisks. It does not start with the host.
func withDisks(w *world) {
	w.on("", "mkdir -p /var/lib/libvirt/disks; $v pool-define-as disks dir --target /var/lib/libvirt/disks; $v pool-start disks")
}

// running creates a machine and waits until it runs.
func (w *world) running(name string, spec func(*infrav1.LibvirtMachineSpec)) {
	w.t.Helper()
	lm := w.libvirtMachine(name)
	spec(&lm.Spec)
	w.createMachine(lm)
	w.expectMachine(name, infrav1.MachineReadyCondition, "True/Running")
}

// here is the world for a subtest.
func (w *world) here(t *testing.T) *world {
	inner := *w
	inner.t, inner.g = t, NewWithT(t)
	return &inner
}

// deletionRow is something that happens to a machine that runs, before it is deleted.
type deletionRow struct {
	name string
	spec func(*infrav1.LibvirtMachineSpec)
	// happen is a script for the host; mend is one that afterwards makes the host what it was, but for the machine.
	happen, mend string
}

func TestAMachineIsDeletedWhateverHappenedToIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withDisks)
	w.expectHost("True/HostReady")
	for _, row := range []deletionRow{
		{"the domain is shut off", onDisks, "$v destroy $n", ""},
		{"the domain's QEMU was killed", onDisks, "pkill -9 qemu-system; until [ \"$($v domstate $n)\" = 'shut off' ]; do sleep 0.1; done", ""},
		{"the domain is paused", onDisks, "$v suspend $n", ""},
		{"the domain was undefined by hand", onDisks, "$v destroy $n; $v undefine $n", ""},
		{"the domain was undefined by hand and runs on", onDisks, "$v undefine $n", ""},
		{"the domain's memory was saved", onDisks, "$v managedsave $n", ""},
		{"the domain has a snapshot", onDisks, "$v snapshot-create-as $n before", ""},
		{"the root disk was deleted by hand", onDisks, "$v destroy $n; $v vol-delete --pool disks $n-root.qcow2", ""},
		{"the root disk's file was removed behind libvirt's back", onDisks, "rm /var/lib/libvirt/disks/$n-root.qcow2", ""},
		{"the storage pool is inactive", onDisks, "$v pool-destroy disks", ""},
		{"the storage pool is not defined any more", onDisks, "$v pool-destroy disks; $v pool-undefine disks",
			// Nobody but the pool could have told where the disk is.
			"rm /var/lib/libvirt/disks/$n-root.qcow2; $v pool-define-as disks dir --target /var/lib/libvirt/disks; $v pool-start disks"},
		{"on tmpfs, the domain was undefined by hand", ephemeral, "$v destroy $n; $v undefine $n", ""},
		{"on tmpfs, the pool is inactive", ephemeral, "$v pool-destroy $n", ""},
		{"on tmpfs, the pool is not defined any more", ephemeral, "$v pool-destroy $n; $v pool-undefine $n", ""},
		{"on tmpfs, everything was removed by hand", ephemeral,
			"$v destroy $n; $v undefine $n; $v pool-destroy $n; $v pool-undefine $n; umount /run/caplv/$n; rmdir /run/caplv/$n", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := w.here(t)
			w.running("worker01", row.spec)
			w.on("worker01", row.happen)
			w.deleteMachine("worker01")
			w.expectGone("worker01")
			if row.mend != "" {
				w.on("worker01", row.mend)
			}
			w.expectNothingLeft()
		})
	}
	w.expectListing(w.untouched)
}

func TestAMachineIsDeletedAfterItsHostHasRebooted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withDisks)
	w.expectHost("True/HostReady")
	for _, row := range []deletionRow{
		// libvirtd finds pools of directories active when it starts, unless their directory is gone.
		{"on a storage pool", onDisks, "$v pool-destroy disks", ""},
		{"on a storage pool whose disk did not come back", onDisks, "$v pool-destroy disks; mv /var/lib/libvirt/disks /var/lib/libvirt/away",
			"mv /var/lib/libvirt/away /var/lib/libvirt/disks; rm /var/lib/libvirt/disks/$n-root.qcow2; $v pool-start disks"},
		{"on tmpfs", ephemeral, "test -z \"$(ls /run/caplv)\"; test \"$($v pool-list --name --inactive)\" = $n", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := w.here(t)
			w.running("worker01", row.spec)
			w.g.Expect(w.host.Reboot(t.Context())).To(Succeed())
			w.g.Expect(w.on("worker01", "$v domstate $n")).To(Equal("shut off"))
			w.on("worker01", row.happen)
			w.deleteMachine("worker01")
			w.expectGone("worker01")
			if row.mend != "" {
				w.on("worker01", row.mend)
			}
			// What libvirtd keeps of a domain while it runs survives the power failure, and is libvirtd's to remove.
			w.on("worker01", "rm -r /var/lib/libvirt/qemu/domain-*-e2e* /var/lib/libvirt/qemu/channel/target/domain-*-e2e*")
			w.expectNothingLeft()
		})
	}
	w.expectListing(w.untouched)
}

// force deletes an object and does not wait for those who want to do something before it is gone.
func (w *world) force(o client.Object) {
	w.t.Helper()
	c := suite.cp.Client()
	w.g.Expect(client.IgnoreNotFound(c.Delete(w.t.Context(), o))).To(Succeed())
	w.g.Eventually(func(g Gomega) {
		err := c.Get(w.t.Context(), client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) {
			return
		}
		g.Expect(err).NotTo(HaveOccurred())
		o.SetFinalizers(nil)
		g.Expect(client.IgnoreNotFound(c.Update(w.t.Context(), o))).To(Succeed())
		err = c.Get(w.t.Context(), client.ObjectKeyFromObject(o), o)
		g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%T %s is still there", o, o.GetName())
	}, time.Minute, poll).Should(Succeed())
}

func TestAMachineIsDeletedWhenTheObjectsAroundItAreGone(t *testing.T) {
	w := newWorld(t)
	w.expectHost("True/HostReady")
	w.running("worker01", ephemeral)
	w.force(&clusterv1.Machine{ObjectMeta: w.meta("worker01")})
	w.force(&corev1.Secret{ObjectMeta: w.meta("worker01-bootstrap")})
	w.force(&infrav1.LibvirtCluster{ObjectMeta: w.meta("prod")})
	w.force(&clusterv1.Cluster{ObjectMeta: w.meta("prod")})
	// A restart also takes away what the operator remembers.
	suite.operator.Kill()
	w.g.Expect(suite.operator.Start(t.Context())).To(Succeed())
	lm := w.machine("worker01")
	w.g.Expect(lm.DeletionTimestamp).To(BeNil())
	w.g.Expect(suite.cp.Client().Delete(t.Context(), lm)).To(Succeed())
	w.expectGone("worker01")
	w.expectListing(w.untouched)
}

func TestAMachineWhoseHostObjectIsGoneIsDeletedWhenItIsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.expectHost("True/HostReady")
	w.running("worker01", ephemeral)
	w.force(&infrav1.LibvirtHost{ObjectMeta: w.meta("host")})
	w.deleteMachine("worker01")
	lm := w.expectMachine("worker01", infrav1.CleanupStalledCondition, "True/"+infrav1.HostNotFoundReason)
	w.g.Expect(lm.Finalizers).To(ContainElement(infrav1.MachineFinalizer))
	w.g.Expect(w.on("worker01", "$v domstate $n")).To(Equal("running"))

	w.create(w.libvirtHost(w.host.URI(), w.host.Fingerprint))
	w.expectGone("worker01")
	w.expectListing(w.untouched)
}

func TestAMachineOfWhichNothingWasEverCreatedIsDeletedWithoutItsHost(t *testing.T) {
	t.Parallel()
	w := newNamespace(t)
	t.Cleanup(w.deleteEverything)
	w.createHostSecret(newKey(w, ""))
	w.create(w.libvirtHost("qemu+ssh://caplv@127.0.0.1:1/system", "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"))
	w.expectHost("False/" + infrav1.UnreachableReason)
	w.createMachine(w.libvirtMachine("worker01"))
	w.expectMachine("worker01", infrav1.MachineReadyCondition, "False/"+infrav1.UnreachableReason)
	w.deleteMachine("worker01")
	w.expectGone("worker01")
}

// TestTwoOperatorsThatDeleteAtOnceLeaveNothing is what happens when a leader is replaced that is not dead.
func TestTwoOperatorsThatDeleteAtOnceLeaveNothing(t *testing.T) {
	w := newWorld(t, withDisks)
	w.expectHost("True/HostReady")
	second := suite.operator.Another()
	w.g.Expect(second.Start(t.Context())).To(Succeed())
	t.Cleanup(second.Kill)
	for name, spec := range map[string]func(*infrav1.LibvirtMachineSpec){"worker01": onDisks, "worker02": ephemeral} {
		t.Run(name, func(t *testing.T) {
			w := w.here(t)
			w.running(name, spec)
			w.deleteMachine(name)
			// The LibvirtMachine as well, and again: whoever comes second finds nothing, or the same.
			for range 3 {
				w.g.Expect(client.IgnoreNotFound(suite.cp.Client().Delete(t.Context(), &infrav1.LibvirtMachine{ObjectMeta: w.meta(name)}))).To(Succeed())
			}
			w.expectGone(name)
			w.expectNothingLeft()
		})
	}
}
