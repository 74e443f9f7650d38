// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootartifact

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/job"
)

const (
	// fresh is how long a machine is not asked for again after its files were seen on the host.
	fresh = 5 * time.Minute
	// parallel is how many files are sent to hosts at the same time.
	parallel = 16
	// timeout bounds one attempt, from the source to the host.
	timeout = 2 * time.Hour
)

// Stager brings boot artifacts to hosts. Its fields are set before it is used; NewStager does.
type Stager struct {
	// Client writes the records of hosts, and lists clusters.
	Client client.Client
	// APIReader reads from the API server: records, which must not be stale, and Secrets.
	APIReader client.Reader
	// Cache has the files on this machine.
	Cache Cache
	// Hosts connects to hosts.
	Hosts hosts.Connector
	// Jobs carry out what takes long, and wake who asked for it.
	Jobs *job.Runner

	slots chan struct{}

	mu       sync.Mutex
	progress map[string]string
	// jobs are the keys of the last ones that were started, by the UID of their host.
	jobs map[types.UID]string
	// results are the last ones, by the UID of their host.
	results map[types.UID]result
}

// result is what a job has brought to a host.
type result struct {
	key string
	set Set
	// machine is for whom it was asked for, and at when.
	machine types.UID
	at      time.Time
}

// NewStager returns a Stager.
func NewStager(c client.Client, live client.Reader, cache Cache, connector hosts.Connector, jobs *job.Runner) *Stager {
	return &Stager{
		Client: c, APIReader: live, Cache: cache, Hosts: connector, Jobs: jobs,
		slots: make(chan struct{}, parallel), progress: map[string]string{}, jobs: map[types.UID]string{}, results: map[types.UID]result{},
	}
}

// work is the boot artifacts of a cluster on their way to one host.
type work struct {
	key                string
	namespace, cluster string
	boot               infrav1.BootArtifacts
	lhost              *infrav1.LibvirtHost
}

// Stage has the cluster's boot artifacts brought to the host by a job. It returns them once they are there, and an *Error with reason
// BootArtifactsStaging, or what went wrong, until then. It never waits for them. After a failure, and for another machine, the next call begins anew: what
// is on the host is compared, and not written again. The job wakes the reconciler of the machine.
func (s *Stager) Stage(ctx context.Context, machine client.Object, lh *infrav1.LibvirtHost, lc *infrav1.LibvirtCluster) (Set, error) {
	key, err := keyOf(lh, lc)
	if err != nil {
		return Set{}, err
	}
	if r, ok := s.result(lh.UID, key); ok && r.machine == machine.GetUID() && time.Since(r.at) < fresh {
		return r.set, nil
	}
	state, known := s.Jobs.State(key)
	switch {
	case !known:
		// What the cluster wanted before, or another one.
		if err := s.end(ctx, lh.UID); err != nil {
			return Set{}, err
		}
		w := work{key: key, namespace: lc.Namespace, cluster: lc.Name, boot: *lc.Spec.BootArtifacts.DeepCopy(), lhost: lh.DeepCopy()}
		s.note(lh.UID, key)
		s.Jobs.Start(key, machine, func(ctx context.Context) error { return s.run(ctx, w) })
	case !state.Running:
		if err := s.Jobs.Forget(ctx, key); err != nil {
			return Set{}, err
		}
		s.tell(key, "")
		if state.Err != nil {
			return Set{}, state.Err
		}
		if r, ok := s.adopt(lh.UID, key, machine.GetUID()); ok {
			return r.set, nil
		}
	}
	return Set{}, &Error{infrav1.BootArtifactsStagingReason, fmt.Sprintf("kernel and initramfs are on their way to %s on the host%s",
		HostPath(lc.Spec.BootArtifacts), s.told(key))}
}

// end ends the job of a host, waits until it has ended, and forgets what it has found.
func (s *Stager) end(ctx context.Context, host types.UID) error {
	s.mu.Lock()
	key := s.jobs[host]
	delete(s.jobs, host)
	delete(s.results, host)
	s.mu.Unlock()
	if key == "" {
		return nil
	}
	s.tell(key, "")
	return s.Jobs.Forget(ctx, key)
}

func (s *Stager) note(host types.UID, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs[host] = key
}

func (s *Stager) result(host types.UID, key string) (result, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.results[host]
	return r, ok && r.key == key
}

// adopt gives a result to the machine that asks first after the job has ended; it may be another than the one for which it was begun.
func (s *Stager) adopt(host types.UID, key string, machine types.UID) (result, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.results[host]
	if !ok || r.key != key || time.Since(r.at) >= fresh {
		return result{}, false
	}
	r.machine = machine
	s.results[host] = r
	return r, true
}

func (s *Stager) keep(host types.UID, r result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results[host] = r
}

// tell keeps what is to be said of a job until the next time that somebody asks.
func (s *Stager) tell(key, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
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

// describe says how far something is. rate is in bytes per second; 0 says nothing of it.
func describe(doing string, done, total int64, rate float64) string {
	text := fmt.Sprintf("%s, %d MiB", doing, done>>20)
	if total > 0 {
		text = fmt.Sprintf("%s, %d %% of %d MiB", doing, done*100/total, total>>20)
	}
	if rate > 0 {
		text += fmt.Sprintf(" at %.1f MiB/s", rate/(1<<20))
	}
	return text
}
