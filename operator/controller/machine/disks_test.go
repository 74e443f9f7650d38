// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/domain"
	"github.com/caplv/caplv/operator/virsh"
)

const rootVolume = "ns-prod-m-root.qcow2"

// fullClone is a machine whose root disk is a copy.
func fullClone(o *objects) { o.lmachine.Spec.RootDisk.CloneStrategy = infrav1.CloneStrategyFullClone }

// afterClone waits for the copy and reconciles.
func (b *bench) afterClone() *infrav1.LibvirtMachine {
	b.t.Helper()
	b.Eventually(func() bool {
		state, known := b.r.Jobs.State(domain.UUID("uid-1"))
		return known && !state.Running
	}).Should(BeTrue(), "the copy must end")
	lm, _ := b.reconcile()
	return lm
}

func TestAFullCloneIsMadeByAJobAndGrownToTheWantedSize(t *testing.T) {
	b := newBench(t, fullClone)
	before := b.connector.host.inventory()
	b.connector.host.cloning = make(chan struct{})
	lm, _ := b.reconcile()
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.CloningDiskReason))
	b.Expect(conditions.GetMessage(lm, infrav1.MachineReadyCondition)).To(ContainSubstring("copied from base.qcow2 since"))
	steps := len(b.connector.host.steps)

	lm, result := b.reconcile()
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.CloningDiskReason))
	b.Expect(b.connector.host.steps).To(HaveLen(steps), "nothing is done beside a copy")
	b.Expect(result.RequeueAfter).To(BeNumerically(">", 0))

	close(b.connector.host.cloning)
	lm = b.afterClone()
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.RunningReason))
	b.Expect(b.connector.host.steps).To(Equal([]string{
		"refresh pool default", "define ns-prod-m", "stage ns-prod-m", "clone default/base.qcow2 to default/" + rootVolume,
		"stage ns-prod-m", "resize volume default/" + rootVolume + " to 10485760", "define ns-prod-m", "start ns-prod-m",
	}))
	seen, err := domain.Parse(b.connector.host.domains["ns-prod-m"].xml)
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(seen.RootCloned).To(BeTrue())
	_, known := b.r.Jobs.State(domain.UUID("uid-1"))
	b.Expect(known).To(BeFalse())

	b.delete()
	lm, _ = b.reconcile()
	b.Expect(lm).To(BeNil())
	b.Expect(b.connector.host.inventory()).To(Equal(before))
}

// TestATornCloneIsNotUsed has the copy fail after it has left a volume, once with the operator alive and once with one that
// has been started anew and knows nothing of the copy.
func TestATornCloneIsNotUsed(t *testing.T) {
	for _, row := range []struct {
		name    string
		restart bool
	}{{"the operator sees it fail", false}, {"the operator was killed meanwhile", true}} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, fullClone)
			b.connector.host.failAt = 3 // After refresh, define and stage.
			b.reconcile()
			if row.restart {
				b.Eventually(func() bool { s, _ := b.r.Jobs.State(domain.UUID("uid-1")); return s.Running }).Should(BeFalse())
				b.Expect(b.r.Jobs.Forget(t.Context(), domain.UUID("uid-1"))).To(Succeed())
			} else {
				lm := b.afterClone()
				b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.ProvisioningFailedReason))
				b.Expect(conditions.GetMessage(lm, infrav1.MachineReadyCondition)).To(ContainSubstring("CloneVolume: injected"))
			}
			b.Expect(b.connector.host.pools["default"].volumes).To(HaveKey(rootVolume), "the torso is there")

			lm, _ := b.reconcile()
			b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.CloningDiskReason))
			b.Expect(b.connector.host.steps).To(ContainElement("delete volume default/" + rootVolume))
			lm = b.afterClone()
			b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.RunningReason))
			image, err := domain.ParseVolume(b.connector.host.pools["default"].volumes[rootVolume])
			b.Expect(err).NotTo(HaveOccurred())
			b.Expect(image.CapacityBytes).To(Equal(uint64(10 << 20)))
		})
	}
}

func TestADeletionEndsACopy(t *testing.T) {
	b := newBench(t, fullClone)
	before := b.connector.host.inventory()
	b.connector.host.cloning = make(chan struct{})
	b.reconcile()
	b.delete()
	lm, _ := b.reconcile()
	b.Expect(lm).To(BeNil())
	b.Expect(b.connector.host.inventory()).To(Equal(before))
	_, known := b.r.Jobs.State(domain.UUID("uid-1"))
	b.Expect(known).To(BeFalse())
}

func TestAMarkDoesNotPassToAnotherCopy(t *testing.T) {
	g := NewWithT(t)
	f, d := newFakeHost(), desired()
	d.FullClone = true
	marked := d.Domain
	marked.RootCloned = true
	xml, err := domain.XML(marked)
	g.Expect(err).NotTo(HaveOccurred())
	f.domains[d.Name] = &fakeDomain{xml: xml}
	plan := provisioning(d)(g, f, &Progress{Staged: true})
	g.Expect(kinds(plan)).To(Equal([]StepKind{StepDefineDomain, StepCloneVolume}))
	seen, err := domain.Parse(plan.Steps[0].XML)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(seen.RootCloned).To(BeFalse())
}

func kinds(p Plan) []StepKind {
	var out []StepKind
	for _, s := range p.Steps {
		out = append(out, s.Kind)
	}
	return out
}

func TestDataDisksAreCreatedAndRemoved(t *testing.T) {
	for _, row := range []struct {
		name      string
		ephemeral bool
		want      []virsh.VolumeRef
	}{
		{"on pools of the host", false, []virsh.VolumeRef{{Pool: "default", Name: rootVolume}, {Pool: "default", Name: "ns-prod-m.logs.qcow2"}, {Pool: "slow", Name: "ns-prod-m.data.qcow2"}}},
		{"beside a root disk on tmpfs", true, []virsh.VolumeRef{{Pool: "ns-prod-m", Name: rootVolume}, {Pool: "ns-prod-m", Name: "ns-prod-m.logs.qcow2"}, {Pool: "slow", Name: "ns-prod-m.data.qcow2"}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, func(o *objects) {
				root := &o.lmachine.Spec.RootDisk
				root.EphemeralPool, root.BaseImagePool = row.ephemeral, "default"
				o.lmachine.Spec.AdditionalDisks = []infrav1.AdditionalDiskSpec{
					{Name: "logs", Size: resource.MustParse("1Mi"), StoragePool: "default", Bus: "virtio"},
					{Name: "data", Size: resource.MustParse("3000001"), StoragePool: "slow", Bus: "scsi"},
				}
			})
			host := b.connector.host
			lm, _ := b.reconcile()
			b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.PoolNotFoundReason))
			b.Expect(conditions.GetMessage(lm, infrav1.MachineReadyCondition)).To(ContainSubstring(`"slow"`))

			host.pools["slow"] = &fakePool{xml: defaultPool, volumes: map[string]string{}}
			before := host.inventory()
			lm, _ = b.reconcile()
			b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.RunningReason), "%v", lm.Status.Conditions)
			b.Expect(host.pools["slow"].active).To(BeTrue(), "an inactive pool is started")
			for _, ref := range row.want {
				b.Expect(host.pools[ref.Pool].volumes).To(HaveKey(ref.Name))
			}
			image, err := domain.ParseVolume(withPath(host.pools["slow"].volumes["ns-prod-m.data.qcow2"]))
			b.Expect(err).NotTo(HaveOccurred())
			b.Expect(image.CapacityBytes).To(Equal(uint64(3000320)), "sizes are whole sectors")

			b.delete()
			lm, _ = b.reconcile()
			b.Expect(lm).To(BeNil())
			host.pools["slow"].active = false
			b.Expect(host.inventory()).To(Equal(before))
		})
	}
}

func TestAForeignVolumeIsNeitherUsedNorDeleted(t *testing.T) {
	for _, row := range []struct {
		name, volume string
		unlisted     bool
	}{
		{"of the root disk's name", rootVolume, false},
		{"of a data disk's name", "ns-prod-m.data.qcow2", false},
		{"a file that libvirt has not seen yet", rootVolume, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, func(o *objects) {
				o.lmachine.Spec.AdditionalDisks = []infrav1.AdditionalDiskSpec{{Name: "data", Size: resource.MustParse("1Mi"), StoragePool: "default"}}
			})
			pool := b.connector.host.pools["default"]
			if row.unlisted {
				pool.unlisted = map[string]string{row.volume: "theirs"}
			} else {
				pool.volumes[row.volume] = "theirs"
			}
			lm, _ := b.reconcile()
			b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.VolumeAlreadyExistsReason))
			b.Expect(conditions.GetMessage(lm, infrav1.MachineReadyCondition)).To(ContainSubstring(row.volume))
			b.Expect(lm.Status.DomainUUID).To(BeEmpty())

			b.delete()
			lm, _ = b.reconcile()
			b.Expect(lm).To(BeNil())
			b.Expect(pool.volumes).To(HaveKeyWithValue(row.volume, "theirs"))
		})
	}
}

func TestAMachineRecoversWhenAForeignVolumeIsGone(t *testing.T) {
	b := newBench(t, nil)
	volumes := b.connector.host.pools["default"].volumes
	volumes[rootVolume] = "theirs"
	b.reconcile()
	delete(volumes, rootVolume)
	lm, _ := b.reconcile()
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.RunningReason))
}
