// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/domain"
	"github.com/caplv/caplv/operator/hostctl"
)

const uid = "8f961c3b-0acf-487e-ac35-0b8ec81b92a1"

// desired is a machine on the pool "default"; ephemeralDesired is one on tmpfs.
func desired() Desired {
	d := Desired{
		Name: "ns-prod-m", UUID: domain.UUID(uid), PoolUUID: domain.PoolUUID(uid),
		Owner:    domain.Owner{Namespace: "ns", Name: "m", UID: uid},
		RootPool: "default", RootVolume: "ns-prod-m-root.qcow2", RootBytes: 10 << 20,
		BasePool: "default", BaseImage: "base.qcow2",
		BootstrapFile: ignitionFile, BootstrapData: []byte("{}"),
	}
	d.Domain = domain.Spec{
		Name: d.Name, UUID: d.UUID, Owner: d.Owner, VirtType: "qemu", Machine: "q35", VCPUs: 1, MemoryMiB: 256, Firmware: "bios",
		RootDisk:     domain.Disk{Pool: d.RootPool, Volume: d.RootVolume, Bus: "virtio", Format: "qcow2"},
		Network:      domain.NIC{Type: "bridge", Name: "br0", Model: "virtio", MAC: domain.MAC(uid)},
		IgnitionPath: "/run/caplv/ns-prod-m/ignition.json",
	}
	return d
}

func ephemeralDesired() Desired {
	d := desired()
	d.Ephemeral, d.RootPool = true, d.Name
	d.Domain.RootDisk.Pool = d.Name
	return d
}

type planner func(Desired) func(g Gomega, f *fakeHost, done *Progress) Plan

func provisioning(d Desired) func(Gomega, *fakeHost, *Progress) Plan {
	return func(g Gomega, f *fakeHost, done *Progress) Plan {
		obs, err := f.Observe(nil, d.query()) //nolint:staticcheck // The fake does not look at the context.
		g.Expect(err).NotTo(HaveOccurred())
		p, err := PlanProvisioning(d, obs, *done)
		g.Expect(err).NotTo(HaveOccurred())
		return p
	}
}

func deletion(d Desired) func(Gomega, *fakeHost, *Progress) Plan {
	return func(g Gomega, f *fakeHost, done *Progress) Plan {
		obs, err := f.Observe(nil, d.query()) //nolint:staticcheck // The fake does not look at the context.
		g.Expect(err).NotTo(HaveOccurred())
		p, err := PlanDeletion(d, obs, *done)
		g.Expect(err).NotTo(HaveOccurred())
		return p
	}
}

// converge applies plans until there is nothing to do, and returns the blocker, if one remains, and the failure of a step.
func converge(t *testing.T, g Gomega, f *fakeHost, d Desired, plan planner) (*Blocker, error) {
	t.Helper()
	var done Progress
	for range maxRounds {
		p := plan(d)(g, f, &done)
		if p.Blocked != nil {
			return p.Blocked, nil
		}
		if p.Done() {
			return nil, nil
		}
		if err := (&Reconciler{}).apply(t.Context(), f, d, p.Steps, &done); err != nil {
			return nil, err
		}
	}
	t.Fatalf("no convergence in %d rounds; steps: %v", maxRounds, f.steps)
	return nil, nil
}

func TestPlansBuildUpAndTakeDown(t *testing.T) {
	for _, row := range []struct {
		name           string
		desired        Desired
		wantUp, wantDn []string
	}{
		{"on a pool of the host", desired(),
			[]string{"refresh pool default", "define ns-prod-m", "stage ns-prod-m", "create volume default/ns-prod-m-root.qcow2", "start ns-prod-m"},
			[]string{"destroy ns-prod-m", "delete volume default/ns-prod-m-root.qcow2", "remove directory ns-prod-m", "undefine ns-prod-m"}},
		{"on tmpfs", ephemeralDesired(),
			[]string{"define ns-prod-m", "stage ns-prod-m", "define pool ns-prod-m", "start pool ns-prod-m", "create volume ns-prod-m/ns-prod-m-root.qcow2", "start ns-prod-m"},
			[]string{"destroy ns-prod-m", "destroy pool ns-prod-m", "undefine pool ns-prod-m", "remove directory ns-prod-m", "undefine ns-prod-m"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			f := newFakeHost()
			before := f.inventory()
			blocker, err := converge(t, g, f, row.desired, provisioning)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(blocker).To(BeNil())
			g.Expect(f.steps).To(Equal(row.wantUp))
			g.Expect(f.directories["ns-prod-m"].Data).To(Equal([]byte("{}")))
			g.Expect(f.directories["ns-prod-m"].Ephemeral).To(Equal(row.desired.Ephemeral))

			f.steps = nil
			blocker, err = converge(t, g, f, row.desired, deletion)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(blocker).To(BeNil())
			g.Expect(f.steps).To(Equal(row.wantDn))
			g.Expect(f.inventory()).To(Equal(before))
		})
	}
}

// TestAnyStepMayFail lets each step fail once and starts over, as after a crash of the operator at that point.
func TestAnyStepMayFail(t *testing.T) {
	for name, d := range map[string]Desired{"on a pool of the host": desired(), "on tmpfs": ephemeralDesired()} {
		for point := range 7 {
			t.Run(name, func(t *testing.T) {
				g := NewWithT(t)
				f := newFakeHost()
				before := f.inventory()
				f.failAt = point
				if _, err := converge(t, g, f, d, provisioning); err != nil {
					g.Expect(err).To(MatchError(errInjected))
				}
				f.failAt = -1
				_, err := converge(t, g, f, d, provisioning)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(f.domains["ns-prod-m"].running).To(BeTrue())

				f.steps, f.failAt = nil, point
				if _, err := converge(t, g, f, d, deletion); err != nil {
					g.Expect(err).To(MatchError(errInjected))
				}
				f.failAt = -1
				_, err = converge(t, g, f, d, deletion)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(f.inventory()).To(Equal(before))
			})
		}
	}
}

func TestAMachineMayBeDeletedBeforeItIsComplete(t *testing.T) {
	for name, d := range map[string]Desired{"on a pool of the host": desired(), "on tmpfs": ephemeralDesired()} {
		for point := range 7 {
			t.Run(name, func(t *testing.T) {
				g := NewWithT(t)
				f := newFakeHost()
				before := f.inventory()
				f.failAt = point
				_, _ = converge(t, g, f, d, provisioning)
				f.failAt = -1
				_, err := converge(t, g, f, d, deletion)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(f.inventory()).To(Equal(before))
			})
		}
	}
}

func TestBlockers(t *testing.T) {
	for _, row := range []struct {
		name    string
		prepare func(*fakeHost, *Desired)
		want    string
		message string
	}{
		{"a foreign domain has the name", func(f *fakeHost, _ *Desired) {
			f.domains["ns-prod-m"] = &fakeDomain{xml: `<domain><name>ns-prod-m</name><uuid>22222222-2222-2222-2222-222222222222</uuid></domain>`}
		}, infrav1.DomainAlreadyExistsReason, "not created by CAPLV"},
		{"another incarnation's domain has the name", func(f *fakeHost, d *Desired) {
			other := d.Domain
			other.Owner.UID, other.UUID = "other", domain.UUID("other")
			xml, _ := domain.XML(other)
			f.domains["ns-prod-m"] = &fakeDomain{xml: xml, running: true}
		}, infrav1.DomainAlreadyExistsReason, "LibvirtMachine ns/m with UID other"},
		{"a domain has the UUID but another owner", func(f *fakeHost, d *Desired) {
			other := d.Domain
			other.Owner.Namespace = "elsewhere"
			xml, _ := domain.XML(other)
			f.domains["ns-prod-m"] = &fakeDomain{xml: xml}
		}, infrav1.DomainAlreadyExistsReason, "elsewhere/m"},
		{"a volume has the name and no domain claims it", func(f *fakeHost, d *Desired) {
			f.pools["default"].volumes[d.RootVolume] = baseVolumeXML
		}, infrav1.VolumeAlreadyExistsReason, "ns-prod-m-root.qcow2"},
		{"a foreign pool has the name of the ephemeral one", func(f *fakeHost, d *Desired) {
			*d = ephemeralDesired()
			f.pools["ns-prod-m"] = &fakePool{xml: defaultPool, active: true, volumes: map[string]string{}}
		}, infrav1.PoolAlreadyExistsReason, "11111111-1111"},
		{"a volume of a data disk's name exists and no domain claims it", func(f *fakeHost, d *Desired) {
			d.DataDisks = []DataDisk{{Pool: "default", Volume: "ns-prod-m.a.qcow2", Bytes: 1 << 20}}
			f.pools["default"].volumes["ns-prod-m.a.qcow2"] = baseVolumeXML
		}, infrav1.VolumeAlreadyExistsReason, "ns-prod-m.a.qcow2"},
		{"a data disk's pool does not exist", func(_ *fakeHost, d *Desired) { d.DataDisks = []DataDisk{{Pool: "slow", Volume: "v", Bytes: 1 << 20}} }, infrav1.PoolNotFoundReason, `"slow"`},
		{"the storage pool does not exist", func(_ *fakeHost, d *Desired) { d.RootPool = "fast" }, infrav1.PoolNotFoundReason, `"fast"`},
		{"the base image's pool does not exist", func(_ *fakeHost, d *Desired) { d.BasePool = "gold" }, infrav1.PoolNotFoundReason, `"gold"`},
		{"the base image does not exist", func(_ *fakeHost, d *Desired) { d.BaseImage = "none.qcow2" }, infrav1.BaseImageNotFoundReason, "none.qcow2"},
		{"the root disk is smaller than the base image", func(_ *fakeHost, d *Desired) { d.RootBytes = 1 << 19 }, infrav1.RootDiskTooSmallReason, "524288 bytes and the base image base.qcow2 has a virtual size of 1048576"},
		{"the network does not exist", func(_ *fakeHost, d *Desired) { d.Network = "lab" }, infrav1.NetworkNotFoundReason, `"lab"`},
		{"the network is not active", func(f *fakeHost, d *Desired) { d.Network = "lab"; f.networks["lab"] = false }, infrav1.NetworkInactiveReason, "virsh net-start lab"},
		{"a machine that has run is gone", func(_ *fakeHost, d *Desired) { d.Provisioned = true }, infrav1.DomainMissingReason, "delete the machine"},
		{"a machine that has run is off", func(f *fakeHost, d *Desired) {
			d.Provisioned = true
			xml, _ := domain.XML(d.Domain)
			f.domains["ns-prod-m"] = &fakeDomain{xml: xml}
		}, infrav1.DomainNotRunningReason, "shut off"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			f, d := newFakeHost(), desired()
			row.prepare(f, &d)
			before := f.inventory()
			blocker, err := converge(t, g, f, d, provisioning)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(blocker).NotTo(BeNil())
			g.Expect(blocker.Reason).To(Equal(row.want))
			g.Expect(blocker.Message).To(ContainSubstring(row.message))

			// What is not the machine's survives its deletion.
			if row.want != infrav1.DomainNotRunningReason && row.want != infrav1.VolumeAlreadyExistsReason {
				_, err = converge(t, g, f, d, deletion)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(withoutNew(f.inventory(), before)).To(Equal(before))
			}
		})
	}
}

// withoutNew keeps of all what was there before.
func withoutNew(all, before []string) []string {
	var kept []string
	for _, item := range all {
		for _, old := range before {
			if item == old {
				kept = append(kept, item)
			}
		}
	}
	return kept
}

func TestAnImageThatWasJustStagedIsFound(t *testing.T) {
	g := NewWithT(t)
	f, d := newFakeHost(), desired()
	f.pools["default"].unlisted = f.pools["default"].volumes
	f.pools["default"].volumes = map[string]string{}
	blocker, err := converge(t, g, f, d, provisioning)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(blocker).To(BeNil())
	g.Expect(f.steps[0]).To(Equal("refresh pool default"))
}

func TestAnInactivePoolIsStarted(t *testing.T) {
	g := NewWithT(t)
	f, d := newFakeHost(), desired()
	f.pools["default"].active = false
	_, err := converge(t, g, f, d, provisioning)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(f.domains["ns-prod-m"].running).To(BeTrue())

	f.pools["default"].active = false
	_, err = converge(t, g, f, d, deletion)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(f.inventory()).To(Equal([]string{"pool default active=true", "volume default/base.qcow2"}))
}

func TestDeletingAMachineWhoseDomainIsGoneDependsOnWhetherItEverWasThere(t *testing.T) {
	for _, row := range []struct {
		name    string
		defined bool
		want    []string
	}{
		{"it never was: what has its name is somebody else's", false, nil},
		{"it was: what has its name is its own", true, []string{"delete volume default/ns-prod-m-root.qcow2", "remove directory ns-prod-m"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			f, d := newFakeHost(), desired()
			d.Defined = row.defined
			f.pools["default"].volumes[d.RootVolume] = baseVolumeXML
			f.directories[d.Name] = hostctl.StageRequest{Name: d.Name}
			_, err := converge(t, g, f, d, deletion)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(f.steps).To(Equal(row.want))
		})
	}
}
