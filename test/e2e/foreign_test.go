// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// foreignRow is something on the host that has the name of something of the machine's.
type foreignRow struct {
	name string
	spec func(*infrav1.LibvirtMachineSpec)
	// make and remove are scripts for the host.
	make, remove string
	wantReason   string
}

const (
	defineForeign = `printf "<domain type='qemu'>$m<name>$n</name><memory unit='MiB'>64</memory><vcpu>1</vcpu><os><type arch='x86_64' machine='q35'>hvm</type></os></domain>" >/root/d.xml; ` +
		`$v define /root/d.xml; rm /root/d.xml; `
	// otherOwner is the ownership that CAPLV writes, of the same machine in a life before.
	otherOwner = `m="<metadata><o:owner xmlns:o='https://caplv.github.io/xmlns/libvirt/v1' namespace='x' name='worker01' uid='11111111-1111-1111-1111-111111111111'/></metadata>"; `
)

var foreignRows = []foreignRow{
	{"a domain that nobody of CAPLV made", onDisks, "m=; " + defineForeign, "$v undefine $n", infrav1.DomainAlreadyExistsReason},
	{"a domain of another LibvirtMachine, which runs", onDisks, otherOwner + defineForeign + "$v start $n",
		"$v destroy $n; $v undefine $n", infrav1.DomainAlreadyExistsReason},
	{"a volume", onDisks, "$v vol-create-as disks $n-root.qcow2 1M --format qcow2",
		"$v vol-delete --pool disks $n-root.qcow2", infrav1.VolumeAlreadyExistsReason},
	{"a storage pool", ephemeral, "mkdir /srv/p; $v pool-define-as $n dir --target /srv/p; $v pool-start $n; $v vol-create-as $n $n-root.qcow2 1M",
		"$v pool-destroy $n; $v pool-undefine $n; rm -r /srv/p", infrav1.PoolAlreadyExistsReason},
	{"a directory that is not root's", onDisks, "mkdir /run/caplv/$n; chown nobody /run/caplv/$n; echo x >/run/caplv/$n/f",
		"rm -r /run/caplv/$n", infrav1.DirectoryAlreadyExistsReason},
	{"a mount in the directory's place", ephemeral, "mkdir /run/caplv/$n; mount -t tmpfs other /run/caplv/$n; echo x >/run/caplv/$n/f",
		"umount /run/caplv/$n; rmdir /run/caplv/$n", infrav1.DirectoryAlreadyExistsReason},
	{"a link in the directory's place", onDisks, "mkdir /srv/p; echo x >/srv/p/f; ln -s /srv/p /run/caplv/$n",
		"test -s /srv/p/f; rm -r /srv/p /run/caplv/$n", infrav1.DirectoryAlreadyExistsReason},
}

// TestWhatIsNotTheMachinesIsNeverTouched has something foreign in the machine's place. The machine is created and deleted beside it;
// another one is created beside it, and runs once the foreign thing is gone.
func TestWhatIsNotTheMachinesIsNeverTouched(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withDisks)
	w.expectHost("True/HostReady")
	clean := w.untouched
	for _, row := range foreignRows {
		t.Run(row.name, func(t *testing.T) {
			w := w.here(t)
			w.on("worker01", row.make)
			w.untouched = w.listing()
			w.createMachine(w.machineFor(row))
			lm := w.expectMachine("worker01", infrav1.MachineReadyCondition, "False/"+row.wantReason)
			w.g.Expect(condition(lm, infrav1.DomainRunningCondition)).To(Equal("False/" + row.wantReason))
			if row.wantReason != infrav1.DirectoryAlreadyExistsReason {
				w.expectNothingLeft()
				w.deleteMachine("worker01")
				w.expectGone("worker01")
				w.expectNothingLeft()
				w.createMachine(w.machineFor(row))
				w.expectMachine("worker01", infrav1.MachineReadyCondition, "False/"+row.wantReason)
			}

			w.on("worker01", row.remove)
			w.expectMachine("worker01", infrav1.MachineReadyCondition, "True/Running")
			w.deleteMachine("worker01")
			w.expectGone("worker01")
			w.untouched = clean
			w.expectNothingLeft()
		})
	}
	w.expectListing(clean)
}

func (w *world) machineFor(row foreignRow) *infrav1.LibvirtMachine {
	lm := w.libvirtMachine("worker01")
	row.spec(&lm.Spec)
	return lm
}

// TestAForeignDirectoryStallsADeletionUntilItIsGone is about the one thing that the helper can only find out by trying: the domain,
// which says that the directory should be the machine's, is there.
func TestAForeignDirectoryStallsADeletionUntilItIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withDisks)
	w.expectHost("True/HostReady")
	w.running("worker01", onDisks)
	w.on("worker01", "$v destroy $n; mount -t tmpfs other /run/caplv/$n; echo x >/run/caplv/$n/f")
	w.deleteMachine("worker01")
	lm := w.expectMachine("worker01", infrav1.CleanupStalledCondition, "True/"+infrav1.DirectoryAlreadyExistsReason)
	w.g.Expect(lm.Finalizers).To(ContainElement(infrav1.MachineFinalizer))
	w.g.Expect(w.on("worker01", "cat /run/caplv/$n/f; $v domstate $n")).To(Equal("x\nshut off"))
	w.on("worker01", "umount /run/caplv/$n")
	w.expectGone("worker01")
	w.expectListing(w.untouched)
}
