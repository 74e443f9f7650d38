// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/domain"
	"github.com/caplv/caplv/operator/virsh"
)

const (
	// recoveryLimit is how often a domain is started again in a row.
	recoveryLimit = 5
	// firstRecovery is the pause before the first of these attempts; it doubles with each. Whoever ends a domain on the host has
	// that long to undefine it as well, which is respected.
	firstRecovery = 10 * time.Second
	// recoveredAfter is how long a domain must run for its attempts to be forgotten.
	recoveredAfter = 10 * time.Minute
	// minRoom is what must be available in a storage pool for a domain that ran out of it to be resumed, in bytes.
	minRoom = 16 << 20
)

// Recovery is what a plan for a machine that has run must know beside the observation.
type Recovery struct {
	// Restart is the policy; without it nothing is done.
	Restart bool
	// Attempts is how many were made since the domain last ran for recoveredAfter.
	Attempts int
	// Due is when the next one is to be made; zero when nobody has decided yet.
	Due time.Time
	// LastFailure is why the last one failed, if it did.
	LastFailure string
	Now         time.Time
}

// trouble is why a domain does not run, and what can be done about it.
type trouble struct {
	reason string
	// what happened, and the way out for whoever looks after the host.
	what, wayOut string
	// remedy is what the policy Restart does; empty where it leaves the domain alone.
	remedy StepKind
	// full are the pools that have no room.
	full []string
}

// planRecovery plans for a machine whose domain exists or has existed, and does not run.
func planRecovery(d Desired, owner ownership, seen domain.Observed, obs virsh.Observation, done Progress) (Plan, error) {
	t := diagnose(d, owner, seen, obs)
	if !d.Recovery.Restart || t.remedy == "" {
		return blocked(t.reason, "%s; %s", t.what, t.wayOut), nil
	}
	if d.Recovery.Attempts >= recoveryLimit {
		return blocked(infrav1.RestartLimitReachedReason,
			"%s; it was started again or resumed %d times without running for %s in between%s; see /var/log/libvirt/qemu/%s.log on the host, then start the domain there, "+
				"set spec.recoveryPolicy to None and back to Restart for new attempts, or delete the machine",
			t.what, d.Recovery.Attempts, recoveredAfter, lastFailure(d), d.Name), nil
	}
	if t.remedy == StepResumeDomain {
		if p, ok, err := planRoom(t, obs, done); ok || err != nil {
			return p, err
		}
	}
	return planAttempt(d, t, obs), nil
}

// planRoom looks whether the pools of a domain that ran out of storage have room again. It returns true when the returned plan is
// all that can be done.
func planRoom(t trouble, obs virsh.Observation, done Progress) (Plan, bool, error) {
	var steps []Step
	for _, name := range t.full {
		pool := obs.Pools[name]
		if !pool.Active {
			continue
		}
		if !done.Refreshed[name] {
			// libvirt knows a pool's room from the last time that it looked.
			steps = append(steps, Step{Kind: StepRefreshPool, Pool: name})
			continue
		}
		seen, err := domain.ParsePool(pool.XML)
		if err != nil {
			return Plan{}, false, fmt.Errorf("storage pool %s: %w", name, err)
		}
		if seen.AvailableBytes < minRoom {
			return blocked(t.reason, "%s; make room there: the domain is resumed when storage pool %s has %d MiB (now %d)",
				t.what, name, minRoom>>20, seen.AvailableBytes>>20), true, nil
		}
	}
	return Plan{Steps: steps}, len(steps) > 0, nil
}

// planAttempt applies the remedy when it is due.
func planAttempt(d Desired, t trouble, obs virsh.Observation) Plan {
	due, verb := d.Recovery.Due, "started again"
	if t.remedy == StepResumeDomain {
		verb = "resumed"
	}
	if due.IsZero() {
		due = d.Recovery.Now.Add(pauseBefore(d.Recovery.Attempts, t.remedy)).Truncate(time.Second)
	}
	if due.After(d.Recovery.Now) {
		p := blocked(t.reason, "%s; it is %s at %s, which is attempt %d of %d%s", t.what, verb, due.UTC().Format(time.TimeOnly+"Z"),
			d.Recovery.Attempts+1, recoveryLimit, lastFailure(d))
		p.Due = due
		return p
	}
	return planRemedy(d, t, obs)
}

// planRemedy applies the remedy now.
func planRemedy(d Desired, t trouble, obs virsh.Observation) Plan {
	var steps []Step
	if t.remedy == StepStartDomain {
		for _, pool := range d.sharedPools() {
			if seen, ok := obs.Pools[pool]; ok && !seen.Active {
				steps = append(steps, Step{Kind: StepStartPool, Pool: pool})
			}
		}
		if obs.Domain.State.Active() {
			steps = append(steps, Step{Kind: StepDestroyDomain})
		}
	}
	return Plan{Steps: append(steps, Step{Kind: t.remedy})}
}

// pauseBefore is how long to wait before an attempt. Room is waited for, not time.
func pauseBefore(attempts int, remedy StepKind) time.Duration {
	if attempts == 0 && remedy == StepResumeDomain {
		return 0
	}
	return firstRecovery << max(0, min(attempts, recoveryLimit))
}

func lastFailure(d Desired) string {
	if d.Recovery.LastFailure == "" {
		return ""
	}
	return " (the last one failed: " + d.Recovery.LastFailure + ")"
}

// diagnose says in what state a domain is that does not run.
func diagnose(d Desired, owner ownership, seen domain.Observed, obs virsh.Observation) trouble {
	if owner == absent {
		return trouble{
			reason: infrav1.DomainMissingReason,
			what:   fmt.Sprintf("domain %s has run on this host and is not defined there any more", d.Name),
			wayOut: "delete the machine to get a new one",
		}
	}
	info := obs.Domain
	const orNew = ", or delete the machine to get a new one"
	t := trouble{reason: infrav1.DomainNotRunningReason, what: fmt.Sprintf("domain %s is %q (%s)", d.Name, info.State, info.Reason)}
	switch {
	case info.State == virsh.StatePaused && info.Reason == virsh.ReasonIOError:
		return diagnoseDisks(d, seen, obs)
	case info.State == virsh.StatePaused:
		t.reason, t.wayOut = infrav1.DomainPausedReason, fmt.Sprintf("resume it on the host (virsh resume %s)", d.Name)+orNew
	case info.State == virsh.StatePMSuspended:
		t.reason, t.wayOut = infrav1.DomainPausedReason, fmt.Sprintf("its guest has suspended itself; wake it on the host (virsh dompmwakeup %s)", d.Name)+orNew
	case info.State == virsh.StateInShutdown:
		t.wayOut = "it has not ended yet"
	case info.State == virsh.StateShutOff, info.State == virsh.StateCrashed:
		if info.State == virsh.StateCrashed || info.Reason == "crashed" || info.Reason == "failed" {
			t.reason = infrav1.DomainCrashedReason
			t.what += fmt.Sprintf(": the guest or its QEMU process failed, see /var/log/libvirt/qemu/%s.log on the host", d.Name)
		}
		t.wayOut, t.remedy = fmt.Sprintf("start it on the host (virsh start %s)", d.Name)+orNew, StepStartDomain
		if lost := lostDisk(d, obs); lost != "" {
			t.what += "; " + lost
			t.wayOut, t.remedy = "delete the machine to get a new one", ""
		}
	default:
		t.wayOut = "see to it on the host" + orNew
	}
	return t
}

// diagnoseDisks is diagnose for a domain that is paused because of a disk.
func diagnoseDisks(d Desired, seen domain.Observed, obs virsh.Observation) trouble {
	var failed []string
	t := trouble{reason: infrav1.DomainIOErrorReason}
	for _, disk := range seen.Disks {
		words, ok := obs.Domain.DiskErrors[disk.Target]
		if !ok {
			continue
		}
		failed = append(failed, fmt.Sprintf("%s in storage pool %s (%s)", disk.Target, disk.Pool, words))
		if words == virsh.NoSpaceOnDisk {
			t.reason, t.remedy = infrav1.NoSpaceReason, StepResumeDomain
			if !slices.Contains(t.full, disk.Pool) {
				t.full = append(t.full, disk.Pool)
			}
		}
	}
	if len(failed) == 0 {
		failed = []string{"libvirt does not say which"}
	}
	t.what = fmt.Sprintf("domain %s is paused because the host could not write or read a disk: %s", d.Name, strings.Join(failed, ", "))
	t.wayOut = fmt.Sprintf("mend the storage and resume the domain on the host (virsh resume %s), or delete the machine to get a new one", d.Name)
	if t.reason == infrav1.NoSpaceReason {
		t.wayOut = fmt.Sprintf("make room there and resume the domain on the host (virsh resume %s), or delete the machine to get a new one", d.Name)
	}
	return t
}

// lostDisk says if the domain cannot be started again because its root disk is gone, as one on tmpfs is when the host was
// rebooted.
func lostDisk(d Desired, obs virsh.Observation) string {
	pool := obs.Pools[d.RootPool]
	_, there := obs.Volumes[virsh.VolumeRef{Pool: d.RootPool, Name: d.RootVolume}]
	switch {
	case there:
		return ""
	case d.Ephemeral:
		return "its root disk, which was in the host's memory, is gone"
	case pool.Active:
		return fmt.Sprintf("its root disk %s is gone from storage pool %s", d.RootVolume, d.RootPool)
	}
	return ""
}
