// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/patch"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/domain"
	"github.com/caplv/caplv/operator/drain"
	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/virsh"
)

const (
	// pollInterval is how often a running machine is looked at.
	pollInterval = 60 * time.Second
	// maxRetry is the longest time between two attempts at something that fails.
	maxRetry = 60 * time.Second
	// maxRounds bounds the rounds of observing and applying in one reconcile.
	maxRounds = 5
)

// scope is what one reconcile knows. The phases only collect facts in it; updateStatus alone turns them into status.
type scope struct {
	// machine is the object; before is a copy of how it was found.
	machine, before *infrav1.LibvirtMachine
	// patch writes what has changed since it was made.
	patch *patch.Helper
	// owner and cluster are nil while unknown or gone. Set by findOwners.
	owner   *clusterv1.Machine
	cluster *clusterv1.Cluster
	// lcluster is the LibvirtCluster of a machine that has yet to be provisioned. Set by phaseControlPlane.
	lcluster *infrav1.LibvirtCluster
	// lhost is the LibvirtHost. Set by phaseHost.
	lhost *infrav1.LibvirtHost
	// host is the connection. Set by phaseConnect.
	host hosts.Host
	// desired is what the machine should be. Set by phaseDesired and reconcileDelete.
	desired Desired

	// waiting is why the machine may not begin. Set by phaseOwners and phaseControlPlane.
	waiting *Blocker
	// hostChecked and hostProblem are what is known of the host.
	hostChecked bool
	hostProblem *Blocker
	// bootstrapChecked and bootstrapProblem are what is known of the bootstrap data.
	bootstrapChecked bool
	bootstrapProblem *Blocker
	// imageProblem is why the cluster's base image is not on the host yet; imageStaged says that it is.
	imageProblem *Blocker
	imageStaged  bool
	// bootProblem is why the cluster's boot artifacts are not on the host yet; bootStaged says that they are, and bootUnwanted that the machine is
	// created without any.
	bootProblem              *Blocker
	bootStaged, bootUnwanted bool
	// observed says that the host was asked for the domain; domainState, domainReason and seen are its answer, and seen
	// is nil when the machine has no domain.
	observed                  bool
	domainState, domainReason string
	running, transient        bool
	seen                      *domain.Observed
	// domainProblem is why the domain does not run; recoverAt is when the recovery policy does something about it, if it does.
	domainProblem *Blocker
	recoverAt     time.Time
	// restarted says that the domain runs as a request for its restart asked; restartRefused is why it runs and was not restarted.
	restarted      bool
	restartRefused string
	// cleanupProblem is why the deletion does not proceed; cleanedUp says that nothing is left on the host.
	cleanupProblem *Blocker
	cleanedUp      bool
	// abandoned says that the machine is given up although something may be left on the host. Set by reconcileDelete.
	abandoned bool
	// draining is what is known of the Node's drain; its zero value is nothing. shutdown is what is known of the guest's shutdown,
	// and hadNode says whether the guest ever became a Node. Set by reconcileDelete.
	draining drain.Verdict
	shutdown shutdown
	hadNode  bool
}

// note keeps what an observation says about the domain.
func (s *scope) note(d Desired, obs virsh.Observation) error {
	owner, seen, err := owns(d, obs)
	if err != nil {
		return err
	}
	s.observed = true
	s.seen, s.domainState, s.domainReason, s.running = nil, "", "", false
	if owner != ours {
		return nil
	}
	s.seen = &seen
	s.domainState = string(obs.Domain.State)
	s.domainReason = obs.Domain.Reason
	s.running = obs.Domain.State.Running()
	s.transient = obs.Domain.Transient
	return nil
}
