// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package baseimage

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/job"
)

const (
	// runTimeout is how long a run may take: an image of tens of gigabytes over a slow line.
	runTimeout = 6 * time.Hour
	// pollInterval is how soon a backend that does not answer is asked again.
	pollInterval = 3 * time.Second
)

// Stager brings images to hosts.
type Stager struct {
	// Client writes the records of hosts.
	Client client.Client
	// APIReader reads from the API server: records, which must not be stale, and Secrets.
	APIReader client.Reader
	// Fetcher has images on this machine.
	Fetcher Fetcher
	// Runners run the playbook.
	Runners Runners
	// Jobs carry out what takes long, and wake who asked for it.
	Jobs *job.Runner

	mu       sync.Mutex
	progress map[string]string
}

// work is one image on its way to one host.
type work struct {
	key       string
	namespace string
	image     infrav1.BaseImage
	host      client.ObjectKey
	lhost     *infrav1.LibvirtHost
}

func newWork(lh *infrav1.LibvirtHost, lc *infrav1.LibvirtCluster) work {
	image := lc.Spec.BaseImage
	return work{
		key:       fmt.Sprintf("base-image/%s/%s/%s/%s", lh.UID, image.Pool, image.VolumeName, Pinned(image)),
		namespace: lc.Namespace, image: *image.DeepCopy(), host: client.ObjectKeyFromObject(lh), lhost: lh.DeepCopy(),
	}
}

// Stage has the cluster's image brought to the host by a job, and says how far it is: nil once it is there, and an *Error with reason
// BaseImageStaging, or with what went wrong, until then. After a failure the next call begins anew. The job wakes the reconciler of object.
func (s *Stager) Stage(ctx context.Context, object client.Object, lh *infrav1.LibvirtHost, lc *infrav1.LibvirtCluster) error {
	w := newWork(lh, lc)
	if !mayStage(lh) {
		return &Error{infrav1.HostNotManagedReason, fmt.Sprintf(
			"storage pool %q of the host has no volume %q, and LibvirtHost %s has no spec.bootstrap whose mode is apply, so that the operator may not bring it there; "+
				"add that, or stage the image with playbooks/stage_base_image.yml",
			w.image.Pool, w.image.VolumeName, lh.Name)}
	}
	state, known := s.Jobs.State(w.key)
	switch {
	case !known:
		s.Jobs.Start(w.key, object, func(ctx context.Context) error { return s.run(ctx, w) })
	case !state.Running:
		if err := s.Jobs.Forget(ctx, w.key); err != nil {
			return err
		}
		s.tell(w.key, "")
		return state.Err
	}
	return &Error{infrav1.BaseImageStagingReason, fmt.Sprintf("image %s is on its way to storage pool %q of the host%s", w.image.VolumeName, w.image.Pool, s.told(w.key))}
}

// tell keeps what is to be said of a job until the next time that somebody asks.
func (s *Stager) tell(key, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.progress == nil {
		s.progress = map[string]string{}
	}
	if text == "" {
		delete(s.progress, key)
		return
	}
	s.progress[key] = text
}

func (s *Stager) told(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text := s.progress[key]; text != "" {
		return ": " + text
	}
	return ""
}

// run is the job: fetch, if it is pushed; run the playbook; record.
func (s *Stager) run(ctx context.Context, w work) error {
	image := map[string]any{"name": string(w.image.VolumeName), "pool": string(w.image.Pool)}
	digest := Pinned(&w.image)
	if w.image.Delivery == infrav1.DeliveryPull {
		source, err := s.pullSource(ctx, w)
		if err != nil {
			return err
		}
		image["sources"] = []any{source}
	} else {
		file, err := s.fetch(ctx, w)
		if err != nil {
			return err
		}
		defer file.Release()
		digest = file.SHA256
		image["src"], image["size"] = file.Path, file.Size
	}
	image["sha256"] = digest
	return s.carryOut(ctx, w, digest, image)
}

func (s *Stager) fetch(ctx context.Context, w work) (File, error) {
	s.tell(w.key, "the operator fetches it")
	return s.Fetcher.Fetch(ctx, w.namespace, w.image.Source, func(done, total int64) {
		text := fmt.Sprintf("the operator fetches it, %d MiB", done>>20)
		if total > 0 {
			text = fmt.Sprintf("the operator fetches it, %d %% of %d MiB", done*100/total, total>>20)
		}
		s.tell(w.key, text)
	})
}

// note tells of a run's events.
func (s *Stager) note(key string, e ansible.Event) {
	switch e.Type {
	case ansible.Progressed:
		s.tell(key, e.Message)
	case ansible.TaskStarted:
		s.tell(key, e.Task)
	}
}
