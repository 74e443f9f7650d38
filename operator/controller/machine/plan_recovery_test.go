// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/domain"
	"github.com/caplv/caplv/operator/virsh"
)

// fallen is a machine that has run, and what is observed of it now.
func fallen(g Gomega, d Desired, state virsh.State, reason string) virsh.Observation {
	xml, err := domain.XML(d.Domain)
	g.Expect(err).NotTo(HaveOccurred())
	return virsh.Observation{
		Domain:  &virsh.DomainInfo{XML: xml, State: state, Reason: reason},
		Pools:   map[string]virsh.PoolInfo{d.RootPool: {Active: true, XML: poolWith(d.RootPool, 1<<30)}},
		Volumes: map[virsh.VolumeRef]string{{Pool: d.RootPool, Name: d.RootVolume}: "<volume/>"},
	}
}

func poolWith(name string, available int) string {
	return fmt.Sprintf(`<pool type='dir'><name>%s</name><uuid>11111111-1111-1111-1111-111111111111</uuid><available unit='bytes'>%d</available></pool>`, name, available)
}

func full(obs *virsh.Observation) {
	obs.Domain.DiskErrors = map[string]string{"vda": virsh.NoSpaceOnDisk}
}

// TestADomainThatDoesNotRunIsNamed has every state that libvirt knows. With the policy None nothing is done, with Restart the step at
// the end, when it is due.
func TestADomainThatDoesNotRunIsNamed(t *testing.T) {
	start, resume := []StepKind{StepStartDomain}, []StepKind{StepRefreshPool}
	for _, row := range []struct {
		name, reason string
		state        virsh.State
		change       func(*virsh.Observation)
		want, wayOut string
		steps        []StepKind
	}{
		{"destroyed by somebody", "destroyed", virsh.StateShutOff, nil, infrav1.DomainNotRunningReason, "virsh start ns-prod-m", start},
		{"shut down by its guest", "shutdown", virsh.StateShutOff, nil, infrav1.DomainNotRunningReason, "virsh start ns-prod-m", start},
		{"stopped by a reboot of the host", "unknown", virsh.StateShutOff, nil, infrav1.DomainNotRunningReason, "virsh start ns-prod-m", start},
		{"ended by a signal", "crashed", virsh.StateShutOff, nil, infrav1.DomainCrashedReason, "/var/log/libvirt/qemu/ns-prod-m.log", start},
		{"not started by libvirt", "failed", virsh.StateShutOff, nil, infrav1.DomainCrashedReason, "virsh start ns-prod-m", start},
		{"crashed and kept", "panicked", virsh.StateCrashed, nil, infrav1.DomainCrashedReason, "virsh start ns-prod-m", []StepKind{StepDestroyDomain, StepStartDomain}},
		{"suspended by somebody", "user", virsh.StatePaused, nil, infrav1.DomainPausedReason, "virsh resume ns-prod-m", nil},
		{"paused by a watchdog", "watchdog", virsh.StatePaused, nil, infrav1.DomainPausedReason, "virsh resume ns-prod-m", nil},
		{"asleep", "disk", virsh.StatePMSuspended, nil, infrav1.DomainPausedReason, "virsh dompmwakeup ns-prod-m", nil},
		{"on its way down", "user", virsh.StateInShutdown, nil, infrav1.DomainNotRunningReason, "has not ended yet", nil},
		{"in no state that is known", "none", "no state", nil, infrav1.DomainNotRunningReason, "on the host", nil},
		{"out of storage", virsh.ReasonIOError, virsh.StatePaused, full, infrav1.NoSpaceReason, "make room there", resume},
		{"a disk that fails", virsh.ReasonIOError, virsh.StatePaused, func(obs *virsh.Observation) {
			obs.Domain.DiskErrors = map[string]string{"vda": "unspecified error"}
		}, infrav1.DomainIOErrorReason, "mend the storage", nil},
		{"a disk that libvirt does not name", virsh.ReasonIOError, virsh.StatePaused, nil, infrav1.DomainIOErrorReason, "does not say which", nil},
		{"undefined", "", "", func(obs *virsh.Observation) { obs.Domain = nil }, infrav1.DomainMissingReason, "delete the machine", nil},
		{"without its root disk", "destroyed", virsh.StateShutOff, func(obs *virsh.Observation) { clear(obs.Volumes) },
			infrav1.DomainNotRunningReason, "is gone from storage pool default; delete the machine", nil},
		{"with an inactive pool", "unknown", virsh.StateShutOff, func(obs *virsh.Observation) {
			clear(obs.Volumes)
			obs.Pools["default"] = virsh.PoolInfo{}
		}, infrav1.DomainNotRunningReason, "virsh start", []StepKind{StepStartPool, StepStartDomain}},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			d := desired()
			d.Provisioned = true
			obs := fallen(g, d, row.state, row.reason)
			if row.change != nil {
				row.change(&obs)
			}
			p, err := PlanProvisioning(d, obs, Progress{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(p.Steps).To(BeEmpty(), "with the policy None")
			g.Expect(p.Due).To(BeZero())
			g.Expect(p.Blocked.Reason).To(Equal(row.want))
			g.Expect(p.Blocked.Message).To(And(ContainSubstring("ns-prod-m"), ContainSubstring(row.wayOut)))

			now := time.Now()
			d.Recovery = Recovery{Restart: true, Now: now, Due: now.Add(-time.Second)}
			p, err = PlanProvisioning(d, obs, Progress{})
			g.Expect(err).NotTo(HaveOccurred())
			var kinds []StepKind
			for _, step := range p.Steps {
				kinds = append(kinds, step.Kind)
			}
			g.Expect(kinds).To(Equal(row.steps))
			if row.steps == nil {
				g.Expect(p.Blocked.Reason).To(Equal(row.want), "the policy leaves this alone")
				g.Expect(p.Due).To(BeZero())
			}
		})
	}
}

func TestAMachineInMemoryThatItsHostHasForgottenIsNotStarted(t *testing.T) {
	g := NewWithT(t)
	d := ephemeralDesired()
	d.Provisioned, d.Recovery = true, Recovery{Restart: true, Now: time.Now(), Due: time.Now().Add(-time.Second)}
	obs := fallen(g, d, virsh.StateShutOff, "unknown")
	clear(obs.Volumes)
	obs.Pools[d.RootPool] = virsh.PoolInfo{}
	p, err := PlanProvisioning(d, obs, Progress{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.Steps).To(BeEmpty())
	g.Expect(p.Blocked.Message).To(ContainSubstring("was in the host's memory, is gone; delete the machine"))
}

func TestADomainIsNeverTouchedThatIsNotOurs(t *testing.T) {
	g := NewWithT(t)
	d := desired()
	d.Provisioned, d.Recovery = true, Recovery{Restart: true, Now: time.Now(), Due: time.Now().Add(-time.Second)}
	obs := fallen(g, d, virsh.StateShutOff, "destroyed")
	obs.Domain.XML = foreignDomain
	p, err := PlanProvisioning(d, obs, Progress{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.Steps).To(BeEmpty())
	g.Expect(p.Blocked.Reason).To(Equal(infrav1.DomainAlreadyExistsReason))
}

func TestAttemptsHaveGrowingPausesAndALimit(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, row := range []struct {
		name     string
		recovery Recovery
		due      time.Duration // From now; 0 for at once.
		message  string
	}{
		{"the first", Recovery{}, 10 * time.Second, "it is started again at 03:04:15Z, which is attempt 1 of 5"},
		{"the second", Recovery{Attempts: 1}, 20 * time.Second, "attempt 2 of 5"},
		{"the last", Recovery{Attempts: 4}, 160 * time.Second, "attempt 5 of 5"},
		{"one that is decided", Recovery{Attempts: 2, Due: now.Add(3 * time.Second)}, 3 * time.Second, "at 03:04:08Z"},
		{"one after a failure", Recovery{Attempts: 1, LastFailure: "no bridge"}, 20 * time.Second, "the last one failed: no bridge"},
		{"one that is due", Recovery{Attempts: 2, Due: now}, 0, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			d := desired()
			d.Provisioned, d.Recovery = true, row.recovery
			d.Recovery.Restart, d.Recovery.Now = true, now
			p, err := PlanProvisioning(d, fallen(g, d, virsh.StateShutOff, "destroyed"), Progress{})
			g.Expect(err).NotTo(HaveOccurred())
			if row.due == 0 {
				g.Expect(p.Steps).To(HaveLen(1))
				return
			}
			g.Expect(p.Steps).To(BeEmpty())
			g.Expect(p.Due).To(Equal(now.Add(row.due)))
			g.Expect(p.Blocked.Reason).To(Equal(infrav1.DomainNotRunningReason), "the state stays what it is")
			g.Expect(p.Blocked.Message).To(ContainSubstring(row.message))
		})
	}
	t.Run("none after the limit", func(t *testing.T) {
		g := NewWithT(t)
		d := desired()
		d.Provisioned, d.Recovery = true, Recovery{Restart: true, Now: now, Attempts: 5, LastFailure: "no bridge"}
		p, err := PlanProvisioning(d, fallen(g, d, virsh.StateShutOff, "crashed"), Progress{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(p.Steps).To(BeEmpty())
		g.Expect(p.Due).To(BeZero())
		g.Expect(p.Blocked.Reason).To(Equal(infrav1.RestartLimitReachedReason))
		g.Expect(p.Blocked.Message).To(And(ContainSubstring("5 times"), ContainSubstring("no bridge"), ContainSubstring("to None and back to Restart")))
	})
}

func TestADomainIsResumedWhenThereIsRoom(t *testing.T) {
	g := NewWithT(t)
	d := desired()
	d.Provisioned, d.Recovery = true, Recovery{Restart: true, Now: time.Now()}
	obs := fallen(g, d, virsh.StatePaused, virsh.ReasonIOError)
	full(&obs)
	obs.Pools["default"] = virsh.PoolInfo{Active: true, XML: poolWith("default", 1<<20)}
	p, err := PlanProvisioning(d, obs, Progress{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.Steps).To(Equal([]Step{{Kind: StepRefreshPool, Pool: "default"}}), "what libvirt knows of the pool is old")

	done := Progress{Refreshed: map[string]bool{"default": true}}
	p, err = PlanProvisioning(d, obs, done)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.Blocked.Reason).To(Equal(infrav1.NoSpaceReason))
	g.Expect(p.Blocked.Message).To(ContainSubstring("resumed when storage pool default has 16 MiB (now 1)"))

	obs.Pools["default"] = virsh.PoolInfo{Active: true, XML: poolWith("default", 32<<20)}
	p, err = PlanProvisioning(d, obs, done)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.Steps).To(Equal([]Step{{Kind: StepResumeDomain}}))

	d.Recovery.Attempts = 1
	p, err = PlanProvisioning(d, obs, done)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.Due).To(BeTemporally("~", d.Recovery.Now.Add(20*time.Second), time.Second), "room that did not last is not tried at once")
	g.Expect(p.Blocked.Message).To(ContainSubstring("it is resumed at"))
}
