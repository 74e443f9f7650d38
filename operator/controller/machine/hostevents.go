// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// HostEvents wakes the reconciler for machines to which something has happened on their host; hostevents.Watcher does. Without it,
// the reconciler sees that when it looks by itself.
type HostEvents interface {
	// Watch begins to tell of a machine's domain. It may be called again, which makes a changed LibvirtHost known.
	Watch(host *infrav1.LibvirtHost, machine client.ObjectKey, domain string)
	// Unwatch ends that. Machines that are not watched are ignored.
	Unwatch(machine client.ObjectKey)
	// Source wakes the reconciler.
	Source() source.Source
}

// watch has a machine watched that has run. One that is being created is looked at often enough.
func (r *Reconciler) watch(s *scope) {
	if r.Events != nil && s.lhost != nil && s.desired.Name != "" && (s.running || s.provisioned()) {
		r.Events.Watch(s.lhost, client.ObjectKeyFromObject(s.machine), s.desired.Name)
	}
}

func (r *Reconciler) unwatch(machine client.ObjectKey) {
	if r.Events != nil {
		r.Events.Unwatch(machine)
	}
}
