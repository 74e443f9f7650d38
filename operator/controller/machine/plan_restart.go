// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/domain"
	"github.com/caplv/caplv/operator/virsh"
)

// Restart is a request for a domain to be started again.
type Restart struct {
	Type infrav1.RestartType
	// Ended says that the domain has ended for this request. What runs now was started for it, or by somebody on the host since.
	Ended bool
}

// planRestart plans for a machine that was asked to be started again. The end of a domain is recorded before it is started, so that
// one request never ends two runs, wherever the operator is interrupted.
func planRestart(d Desired, seen domain.Observed, obs virsh.Observation, done Progress) (Plan, error) {
	cycle := d.Restart.Type == infrav1.RestartTypePowerCycle && !d.Restart.Ended
	if obs.Domain.State.Running() {
		if !cycle {
			return Plan{}, nil
		}
		if why := notStartable(d, obs); why != "" {
			return Plan{Refused: why}, nil
		}
		return Plan{Steps: []Step{{Kind: StepDestroyDomain}}}, nil
	}
	t := diagnose(d, ours, seen, obs)
	switch {
	case cycle && (t.remedy == StepStartDomain || stuck(obs.Domain)):
		if why := notStartable(d, obs); why != "" {
			return blocked(t.reason, "%s; it is not restarted: %s", t.what, why), nil
		}
		if obs.Domain.State.Active() {
			return Plan{Steps: []Step{{Kind: StepDestroyDomain}}}, nil
		}
		return Plan{Ended: true}, nil
	case t.remedy == "":
		return blocked(t.reason, "%s, which no restart mends; %s", t.what, t.wayOut), nil
	case t.remedy == StepResumeDomain:
		if p, ok, err := planRoom(t, obs, done); ok || err != nil {
			return p, err
		}
	}
	return planRemedy(d, t, obs), nil
}

// stuck says whether a domain that does not run has stopped by itself, in a way that ending it mends. What somebody has suspended
// on the host is theirs to resume, and a disk that fails would fail again.
func stuck(info *virsh.DomainInfo) bool {
	return info.State == virsh.StatePMSuspended || info.State == virsh.StatePaused && (info.Reason == "watchdog" || info.Reason == "crashed")
}

// notStartable says why a domain could not be started once it has ended.
func notStartable(d Desired, obs virsh.Observation) string {
	if obs.Domain.Transient {
		return fmt.Sprintf("domain %s is not defined on the host any more, and would be gone; delete the machine to get a new one", d.Name)
	}
	if lost := lostDisk(d, obs); lost != "" {
		return fmt.Sprintf("domain %s could not be started again, because %s; delete the machine to get a new one", d.Name, lost)
	}
	return ""
}
