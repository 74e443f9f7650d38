// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// fastPool gives the host a second storage pool.
func fastPool(w *world) {
	for _, command := range []string{
		"pool-define-as fast dir --target /var/lib/libvirt/fast", "pool-build fast", "pool-start fast",
	} {
		w.g.Expect(w.host.Run(w.t.Context(), append([]string{"virsh", "-c", "qemu:///system"}, strings.Fields(command)...)...)).To(Succeed())
	}
}

// heavyImage gives the pool "default" an image that takes a while to copy: the guest's, with random data behind its file system.
func heavyImage(w *world) {
	w.g.Expect(w.host.Run(w.t.Context(), "sh", "-ec", `
		cd /var/lib/libvirt/images
		qemu-img convert -O raw guest.qcow2 /root/heavy.raw
		dd if=/dev/urandom of=/root/heavy.raw bs=1M seek=80 count=700 status=none
		qemu-img convert -O qcow2 -o compat=1.1 /root/heavy.raw heavy.qcow2
		rm /root/heavy.raw
		virsh -c qemu:///system pool-refresh default`)).To(Succeed())
}

func cloneMachine(w *world) *infrav1.LibvirtMachine {
	lm := w.libvirtMachine("worker01")
	lm.Spec.RootDisk.CloneStrategy = infrav1.CloneStrategyFullClone
	lm.Spec.RootDisk.StoragePool, lm.Spec.RootDisk.BaseImagePool = "fast", "default"
	lm.Spec.RootDisk.Size = resource.MustParse("2Gi")
	return lm
}

func TestAFullCloneIsIndependentOfItsImageAndAsLargeAsWanted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fastPool)
	w.expectHost("True/HostReady")
	w.createMachine(cloneMachine(w))
	lm := w.expectMachine("worker01", infrav1.MachineReadyCondition, "True/Running")
	info, err := w.host.Exec(t.Context(), "qemu-img", "info", "-U", "/var/lib/libvirt/fast/"+lm.Status.NodeName+"-root.qcow2")
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(info).To(ContainSubstring("virtual size: 2 GiB"))
	w.g.Expect(info).NotTo(ContainSubstring("backing file"))
	w.g.Expect(info).To(ContainSubstring("compat: 1.1"))
	w.g.Expect(w.report(lm.Status.NodeName)["DISK"]).To(ContainSubstring("bytes=2147483648"))
	w.g.Expect(w.eventReasons("LibvirtMachine", "worker01")).To(ContainElement(infrav1.CloningDiskReason))

	w.deleteMachine("worker01")
	w.expectGone("worker01")
	w.expectListing(w.untouched)
}

// libvirtdStaysDead keeps systemd from starting a libvirtd again that was killed.
func libvirtdStaysDead(w *world) {
	w.g.Expect(w.host.Run(w.t.Context(), "sh", "-ec", `
		mkdir -p /run/systemd/system/libvirtd.service.d
		printf '[Service]\nRestart=no\n' >/run/systemd/system/libvirtd.service.d/restart.conf
		systemctl daemon-reload`)).To(Succeed())
}

// TestACloneThatIsInterruptedIsMadeAgain kills libvirtd and the copying process half-way.
func TestACloneThatIsInterruptedIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fastPool, heavyImage, libvirtdStaysDead)
	w.expectHost("True/HostReady")
	lm := cloneMachine(w)
	lm.Spec.RootDisk.BaseImage = "heavy.qcow2"
	w.createMachine(lm)
	w.expectMachine("worker01", infrav1.MachineReadyCondition, "False/"+infrav1.CloningDiskReason)
	volume := "/var/lib/libvirt/fast/" + w.nodeName("worker01") + "-root.qcow2"
	w.g.Eventually(func() error {
		return w.host.Run(t.Context(), "sh", "-c", "test $(stat -c %s "+volume+") -gt 10000000 && "+
			"systemctl stop libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket && pkill -9 -x libvirtd && pkill -9 -x qemu-img")
	}, provisionTime, poll).Should(Succeed())
	w.g.Expect(w.host.StopLibvirt(t.Context())).To(Succeed())
	w.g.Expect(w.host.Run(t.Context(), "test", "-e", volume)).To(Succeed(), "there is no torso, so nothing is tested")
	w.g.Expect(w.host.StartLibvirt(t.Context())).To(Succeed())

	w.expectMachine("worker01", infrav1.MachineReadyCondition, "True/Running")
	w.g.Expect(w.host.Run(t.Context(), "qemu-img", "compare", "-U", "/var/lib/libvirt/images/heavy.qcow2", volume)).To(Succeed())
	w.deleteMachine("worker01")
	w.expectGone("worker01")
	w.expectListing(w.untouched)
}
