// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/bootartifact"
	"github.com/caplv/caplv/operator/bootstrap"
	"github.com/caplv/caplv/operator/domain"
	"github.com/caplv/caplv/operator/hostctl"
)

// ignitionDiskFile is the file of the disk that a machine with boot artifacts reads its Ignition config from.
const ignitionDiskFile = "ignition.img"

// BootStager brings the boot artifacts of a cluster to hosts; *bootartifact.Stager does.
type BootStager interface {
	// Stage returns them once they are there, and otherwise why they are not yet: a *bootartifact.Error, or another error. It never waits for them, and
	// wakes the reconciler of the machine.
	Stage(ctx context.Context, machine client.Object, lh *infrav1.LibvirtHost, lc *infrav1.LibvirtCluster) (bootartifact.Set, error)
	// Collect removes from a host without machines what no cluster wants any more.
	Collect(ctx context.Context, lh *infrav1.LibvirtHost) error
}

// bootsDirectly says whether the machine is to boot its cluster's kernel, and to read its config from a disk. A machine that has run boots what
// it was made with.
func (s *scope) bootsDirectly() bool {
	return !s.provisioned() && s.lcluster != nil && s.lcluster.Spec.BootArtifacts != nil &&
		s.machine.Spec.BootstrapFormat != infrav1.BootstrapFormatCloudInit
}

// phaseBootArtifacts waits until kernel and initramfs are on the host.
func (r *Reconciler) phaseBootArtifacts(ctx context.Context, s *scope) error {
	if r.BootArtifacts == nil || !s.bootsDirectly() {
		s.bootUnwanted = !s.provisioned()
		return nil
	}
	if slices.ContainsFunc(s.machine.Spec.AdditionalDisks, func(d infrav1.AdditionalDiskSpec) bool { return d.Name == domain.IgnitionSerial }) {
		s.domainProblem = &Blocker{infrav1.InvalidDefinitionReason, fmt.Sprintf(
			"additionalDisks has a disk %q, and LibvirtCluster %q has bootArtifacts, with which the Ignition config is a disk of that name; give the disk another name",
			domain.IgnitionSerial, s.lcluster.Name)}
		return errStop
	}
	set, err := r.BootArtifacts.Stage(ctx, s.machine.DeepCopy(), s.lhost, s.lcluster)
	if err != nil {
		s.bootProblem = explain(err, infrav1.BootArtifactsStagingFailedReason)
		if problem, ok := errors.AsType[*bootartifact.Error](err); ok {
			s.bootProblem = &Blocker{problem.Reason, problem.Message}
		}
		return errStop
	}
	s.bootStaged = true
	s.desired.bootFrom(set, s.lcluster.Spec.BootArtifacts.KernelArgs)
	return nil
}

// bootFrom makes the machine boot a kernel and read its config from a disk.
func (d *Desired) bootFrom(set bootartifact.Set, args string) {
	d.BootstrapFile, d.BootstrapData = ignitionDiskFile, bootstrap.Disk(d.BootstrapData)
	d.Domain.IgnitionPath, d.Domain.IgnitionDiskPath = "", hostctl.Directory(d.Name)+"/"+ignitionDiskFile
	d.Domain.Boot = domain.DirectBoot{Kernel: set.Kernel.Path(), Initramfs: set.Initramfs.Path(), Args: domain.BootArgs(args)}
}

// collectBootArtifacts removes from the host of a machine that is gone what no cluster wants any more. It holds up no deletion: what is left is recorded,
// and removed with the next machine or with the host.
func (r *Reconciler) collectBootArtifacts(ctx context.Context, lh *infrav1.LibvirtHost) {
	if r.BootArtifacts == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.HostTimeout)
	defer cancel()
	if err := r.BootArtifacts.Collect(ctx, lh); err != nil {
		ctrl.LoggerFrom(ctx).Info("Boot artifacts that nobody wants any more stay on the host", "LibvirtHost", client.ObjectKeyFromObject(lh), "reason", err.Error())
	}
}

// setBootArtifactsStaged says nothing of a machine that boots from its disk.
func setBootArtifactsStaged(s *scope) {
	switch {
	case s.bootProblem != nil:
		set(s, infrav1.BootArtifactsStagedCondition, metav1.ConditionFalse, *s.bootProblem)
	case s.bootStaged:
		set(s, infrav1.BootArtifactsStagedCondition, metav1.ConditionTrue, Blocker{Reason: infrav1.BootArtifactsStagedReason})
	case s.bootUnwanted:
		// The cluster's author has thought better of it.
		conditions.Delete(s.machine, infrav1.BootArtifactsStagedCondition)
	}
}
