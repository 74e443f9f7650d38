// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/baseimage"
	"github.com/caplv/caplv/operator/virsh"
)

// stagingPoll is how often the condition of an image on its way is renewed.
const stagingPoll = 5 * time.Second

// ImageStager brings the base image of a cluster to hosts.
type ImageStager interface {
	// Stage returns nil once the image is there, and otherwise why it is not yet: an *baseimage.Error, or another error. It never waits for it,
	// and wakes the reconciler of object.
	Stage(ctx context.Context, object client.Object, lh *infrav1.LibvirtHost, lc *infrav1.LibvirtCluster) error
}

// phaseBaseImage waits until the image that the cluster's author wants on every host is on this one.
func (r *Reconciler) phaseBaseImage(ctx context.Context, s *scope) error {
	if r.Images == nil || s.provisioned() || s.lcluster == nil || !wantsImage(s.desired, s.lcluster.Spec.BaseImage) {
		return nil
	}
	image := s.lcluster.Spec.BaseImage
	present, err := r.hasVolume(ctx, s, virsh.VolumeRef{Pool: string(image.Pool), Name: string(image.VolumeName)})
	if err != nil {
		return err
	}
	if present && baseimage.Current(s.lhost, image) {
		s.imageStaged = true
		return nil
	}
	err = r.Images.Stage(ctx, s.machine.DeepCopy(), s.lhost, s.lcluster)
	if err == nil {
		s.imageStaged = true
		return nil
	}
	s.imageProblem = explain(err, infrav1.BaseImageStagingFailedReason)
	if problem, ok := errors.AsType[*baseimage.Error](err); ok {
		s.imageProblem = &Blocker{problem.Reason, problem.Message}
	}
	return errStop
}

// wantsImage says whether the machine's root disk comes from the cluster's image.
func wantsImage(d Desired, image *infrav1.BaseImage) bool {
	return image != nil && string(image.VolumeName) == d.BaseImage && string(image.Pool) == d.BasePool
}

// hasVolume asks the host for a volume. A host that cannot be asked is noted.
func (r *Reconciler) hasVolume(ctx context.Context, s *scope, ref virsh.VolumeRef) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, r.HostTimeout)
	defer cancel()
	if err := r.connect(ctx, s); err != nil {
		s.hostProblem = explain(err, infrav1.ProvisioningFailedReason)
		return false, errStop
	}
	obs, err := s.host.Observe(ctx, virsh.Query{Domain: s.desired.Name, Pools: []string{ref.Pool}, Volumes: []virsh.VolumeRef{ref}})
	if err != nil {
		s.hostProblem = explain(err, infrav1.ProvisioningFailedReason)
		return false, errStop
	}
	return obs.Volumes[ref] != "", nil
}
