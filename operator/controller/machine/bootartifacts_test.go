// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/bootartifact"
	"github.com/caplv/caplv/operator/domain"
	"github.com/caplv/caplv/operator/hostctl"
)

// fakeBoot is a BootStager that counts how often it is asked.
type fakeBoot struct {
	asked, collected int
	set              bootartifact.Set
	err, collect     error
}

func (f *fakeBoot) Stage(context.Context, client.Object, *infrav1.LibvirtHost, *infrav1.LibvirtCluster) (bootartifact.Set, error) {
	f.asked++
	return f.set, f.err
}

func (f *fakeBoot) Collect(context.Context, *infrav1.LibvirtHost) error {
	f.collected++
	return f.collect
}

func bootSet(kernel string) bootartifact.Set {
	return bootartifact.Set{
		Kernel:    hostctl.BootFile{Dir: "/boot", SHA256: kernel, Name: hostctl.KernelFile},
		Initramfs: hostctl.BootFile{Dir: "/boot", SHA256: "i", Name: hostctl.InitramfsFile},
	}
}

func newBootBench(t *testing.T, change func(*objects)) (*bench, *fakeBoot) {
	boot := &fakeBoot{set: bootSet("k")}
	b := newBench(t, func(o *objects) {
		o.lcluster.Spec.BootArtifacts = &infrav1.BootArtifacts{KernelArgs: "ignition.platform.id=metal\nconsole=ttyS0\n"}
		if change != nil {
			change(o)
		}
	})
	b.r.BootArtifacts = boot
	return b, boot
}

// definition is the machine's domain as it is defined on the host.
func (b *bench) definition(lm *infrav1.LibvirtMachine) domain.Observed {
	b.t.Helper()
	d := b.connector.host.domains[lm.Status.NodeName]
	b.Expect(d).NotTo(BeNil())
	seen, err := domain.Parse(d.xml)
	b.Expect(err).NotTo(HaveOccurred())
	return seen
}

func TestAMachineBootsItsClustersKernelAndReadsItsConfigFromADisk(t *testing.T) {
	b, boot := newBootBench(t, nil)
	boot.err = &bootartifact.Error{Reason: infrav1.BootArtifactsStagingReason, Message: "vmlinuz, 34 %"}
	lm, result := b.reconcile()
	for _, c := range []string{infrav1.MachineReadyCondition, infrav1.BootArtifactsStagedCondition} {
		b.Expect(conditions.GetReason(lm, c)).To(Equal(infrav1.BootArtifactsStagingReason))
		b.Expect(conditions.GetMessage(lm, c)).To(Equal("vmlinuz, 34 %"))
	}
	b.Expect(result.RequeueAfter).To(Equal(stagingPoll))
	b.Expect(<-b.recorder.Events).To(ContainSubstring("Normal BootArtifactsStaging"))
	b.Expect(b.connector.host.steps).To(BeEmpty())

	boot.err = nil
	lm, _ = b.reconcile()
	b.Expect(conditions.IsTrue(lm, infrav1.BootArtifactsStagedCondition)).To(BeTrue())
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.RunningReason))
	seen := b.definition(lm)
	b.Expect(seen.Boot).To(Equal(domain.DirectBoot{Kernel: "/boot/k/vmlinuz", Initramfs: "/boot/i/initramfs.img", Args: "ignition.platform.id=metal console=ttyS0"}))
	b.Expect(seen.Disks[len(seen.Disks)-1]).To(And(
		HaveField("Serial", "ignition"), HaveField("Bus", "virtio"), HaveField("Path", "/run/caplv/"+lm.Status.NodeName+"/ignition.img")))
	b.Expect(b.connector.host.domains[lm.Status.NodeName].xml).NotTo(ContainSubstring("fw_cfg"))
	staged := b.connector.host.directories[lm.Status.NodeName]
	b.Expect(staged.File).To(Equal("ignition.img"))
	b.Expect(len(staged.Data) % 4096).To(BeZero())
	var config struct{ Ignition struct{ Version string } }
	b.Expect(json.Unmarshal(staged.Data, &config)).To(Succeed())
	b.Expect(config.Ignition.Version).To(Equal("3.2.0"))
	b.Expect(string(staged.Data)).To(ContainSubstring("/etc/hostname"), "it is not compressed: a disk is read at once")

	asked := boot.asked
	b.reconcile()
	b.Expect(boot.asked).To(Equal(asked), "a machine that has run needs them no more")
}

func TestMachinesThatBootFromTheirDisks(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*objects)
	}{
		{"the cluster has no boot artifacts", func(o *objects) { o.lcluster.Spec.BootArtifacts = nil }},
		{"cloud-init has a disk of its own", func(o *objects) {
			o.lmachine.Spec.BootstrapFormat = infrav1.BootstrapFormatCloudInit
			o.secret.Data["value"] = []byte("#cloud-config\n")
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b, boot := newBootBench(t, row.change)
			lm, _ := b.reconcile()
			b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.RunningReason))
			b.Expect(b.definition(lm).Boot).To(BeZero())
			b.Expect(boot.asked).To(BeZero())
			b.Expect(conditions.Has(lm, infrav1.BootArtifactsStagedCondition)).To(BeFalse())
		})
	}
}

func TestAFailureToStageBootArtifactsIsInTheConditionsAndRecovers(t *testing.T) {
	for _, row := range []struct {
		err  error
		want string
	}{
		{&bootartifact.Error{Reason: infrav1.BootArtifactsFetchFailedReason, Message: "404"}, infrav1.BootArtifactsFetchFailedReason},
		{&bootartifact.Error{Reason: infrav1.SecretNotFoundReason, Message: "no Secret"}, infrav1.SecretNotFoundReason},
		{&hostctl.Error{Code: hostctl.CodeNoSpace, Message: "full"}, infrav1.NoSpaceReason},
		{&hostctl.Error{Code: hostctl.CodeHelperOutdated, Message: "old"}, infrav1.HelperUnavailableReason},
		{errors.New("words"), infrav1.BootArtifactsStagingFailedReason},
	} {
		t.Run(row.want, func(t *testing.T) {
			b, boot := newBootBench(t, nil)
			boot.err = row.err
			lm, result := b.reconcile()
			for _, c := range []string{infrav1.MachineReadyCondition, infrav1.BootArtifactsStagedCondition} {
				b.Expect(conditions.GetReason(lm, c)).To(Equal(row.want))
				b.Expect(conditions.GetMessage(lm, c)).To(ContainSubstring(row.err.Error()))
			}
			b.Expect(result.RequeueAfter).NotTo(BeZero())
			b.Expect(<-b.recorder.Events).To(ContainSubstring("Warning " + row.want))
			b.Expect(b.connector.host.steps).To(BeEmpty())
			boot.err = nil
			lm, _ = b.reconcile()
			b.Expect(conditions.IsTrue(lm, infrav1.BootArtifactsStagedCondition)).To(BeTrue())
			b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.RunningReason))
		})
	}
}

func TestADataDiskWithTheNameOfTheConfigIsToldBeforeAnythingIsMade(t *testing.T) {
	b, boot := newBootBench(t, func(o *objects) {
		o.lmachine.Spec.AdditionalDisks = []infrav1.AdditionalDiskSpec{{Name: "ignition", Size: resource.MustParse("1Mi"), StoragePool: "default"}}
	})
	lm, _ := b.reconcile()
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.InvalidDefinitionReason))
	b.Expect(conditions.GetMessage(lm, infrav1.MachineReadyCondition)).To(ContainSubstring("give the disk another name"))
	b.Expect(boot.asked).To(BeZero())
	b.Expect(b.connector.host.steps).To(BeEmpty())
}

// TestAMachineThatHasNotRunYetGetsTheKernelOfToday stops between the definition and the start, while the cluster's kernel becomes another one.
func TestAMachineThatHasNotRunYetGetsTheKernelOfToday(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*bench, *fakeBoot)
		want   string
	}{
		{"another kernel", func(_ *bench, boot *fakeBoot) { boot.set = bootSet("newer") }, "/boot/newer/vmlinuz"},
		{"no kernel any more", func(b *bench, _ *fakeBoot) {
			lc := &infrav1.LibvirtCluster{}
			b.Expect(b.r.Client.Get(b.t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "prod"}, lc)).To(Succeed())
			lc.Spec.BootArtifacts = nil
			b.Expect(b.r.Client.Update(b.t.Context(), lc)).To(Succeed())
		}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			b, boot := newBootBench(t, nil)
			b.connector.host.failAt = 2
			lm, _ := b.reconcile()
			b.Expect(b.definition(lm).Boot.Kernel).To(Equal("/boot/k/vmlinuz"))
			b.Expect(b.connector.host.domains[lm.Status.NodeName].running).To(BeFalse())
			row.change(b, boot)
			lm, _ = b.reconcile()
			b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.RunningReason))
			b.Expect(b.definition(lm).Boot.Kernel).To(Equal(row.want))
			b.Expect(conditions.Has(lm, infrav1.BootArtifactsStagedCondition)).To(Equal(row.want != ""))
		})
	}
}

func TestAMachineThatIsDeletedLeavesNoBootArtifactsThatNobodyWants(t *testing.T) {
	for name, failure := range map[string]error{"they can be removed": nil, "they cannot, which holds up no deletion": errors.New("busy")} {
		t.Run(name, func(t *testing.T) {
			b, boot := newBootBench(t, nil)
			boot.collect = failure
			lm, _ := b.reconcile()
			b.Expect(boot.collected).To(BeZero())
			b.Expect(b.r.Client.Delete(t.Context(), lm)).To(Succeed())
			lm, _ = b.reconcile()
			b.Expect(lm).To(BeNil())
			b.Expect(boot.collected).To(Equal(1))
			b.Expect(b.connector.host.domains).To(BeEmpty())
		})
	}
}
