// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/ansible/runner/events"
	"github.com/caplv/caplv/operator/ansible/runner/process"
	"github.com/caplv/caplv/operator/ansible/runner/queue"
)

// finish says how the runs of a batch have ended, and gives their hosts and the slot back.
func (r *Runner) finish(b *batch, e ending, output string, err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	var items []queue.Item
	for _, a := range b.runs {
		items = append(items, a.item)
	}
	r.queue.Release(items)
	delete(r.batches, b)
	for _, a := range b.runs {
		e.output = a.scrub.Text(output)
		switch {
		case err != nil:
			r.log.Error(err, "Carrying a run out failed", "run", a.item.Key)
			a.status().Message = "The sidecar could not carry it out: " + a.scrub.Text(err.Error())
			r.end(a, ansible.Failed)
		case r.again(b, a, e):
		default:
			r.end(a, r.settle(a, e))
		}
	}
	r.rotate()
	r.dispatch()
}

// again puts a run back that was spoilt by those that it was carried out with. It goes alone now, so that it comes back at most once.
func (r *Runner) again(b *batch, a *run, e ending) bool {
	if len(b.runs) == 1 || a.alone || a.canceled || r.stopping {
		return false
	}
	for _, h := range a.hosts {
		phase, _ := outcome(h, e)
		if phase != ansible.Succeeded && !innocent(h, phase) {
			return false
		}
	}
	if phase := r.phaseOf(a, e); phase == ansible.Succeeded {
		return false
	}
	r.log.Info("Repeating a run alone, because others that it was carried out with have failed", "run", a.item.Key)
	a.alone, a.batch = true, nil
	a.item.Kind, a.item.Since = "", r.clock()
	a.reset()
	a.status().Phase = ansible.Queued
	r.queue.Return(a.item)
	r.logged(r.save(a), a)
	return true
}

// phaseOf is the worst phase of a run's hosts.
func (r *Runner) phaseOf(a *run, e ending) ansible.Phase {
	phase := ansible.Succeeded
	for _, h := range a.hosts {
		of, _ := outcome(h, e)
		phase = worst(phase, of)
	}
	return phase
}

// settle gives each host its phase and returns the run's.
func (r *Runner) settle(a *run, e ending) ansible.Phase {
	for _, name := range a.names() {
		h := a.hosts[name]
		phase, message := outcome(h, e)
		h.Result.Phase = phase
		if message == "" {
			continue
		}
		if h.Result.Message == "" {
			h.Result.Message = events.CleanMessage(message)
		}
		if h.Result.FailedTask == "" && h.Working {
			h.Result.FailedTask = h.Task
		}
		a.status().Message = events.CleanMessage(message)
	}
	if a.canceled {
		a.status().Message = "Canceled"
		return ansible.Canceled
	}
	return r.phaseOf(a, e)
}

// end ends a run for good, and forgets its secrets.
func (r *Runner) end(a *run, phase ansible.Phase) {
	status := a.status()
	status.Phase, status.Finished, status.Task, status.Progress = phase, r.clock(), "", ""
	for _, h := range a.hosts {
		if h.Result.Phase == "" {
			h.Result.Phase = phase
		}
	}
	*status = a.snapshot()
	r.logged(r.save(a), a)
	r.logged(a.log.Add(ansible.Event{Time: status.Finished, Type: ansible.RunEnded, Outcome: string(phase), Message: status.Message,
		TasksDone: status.TasksDone, TasksKnown: status.TasksKnown}), a)
	r.metrics.ended(status)
	r.log.Info("Ended a run", "run", status.Key, "phase", phase)
	a.request, a.scrub, a.batch, a.hosts = nil, nil, nil, nil
}

// endUncarried ends a run that has not begun.
func (r *Runner) endUncarried(a *run, message string) {
	a.status().Message = message
	r.end(a, ansible.Canceled)
}

// rotate drops the oldest runs that have ended.
func (r *Runner) rotate() {
	var ended []ansible.Status
	for _, a := range r.runs {
		if a.status().Phase.Ended() {
			ended = append(ended, *a.status())
		}
	}
	removed, err := r.store.Rotate(ended)
	if err != nil {
		r.log.Error(err, "Rotating artifacts failed")
	}
	for _, key := range removed {
		delete(r.runs, key)
	}
}

// recover ends what an earlier life has left, and says that its runs are lost.
func (r *Runner) recover() error {
	if ended := process.End(r.root.Marker(), r.options.Grace); ended > 0 {
		r.log.Info("Ended processes that an earlier ansible-runner has left", "processes", ended)
	}
	swept, err := r.root.Sweep()
	if err != nil {
		return err
	}
	if swept > 0 {
		r.log.Info("Removed directories that an earlier ansible-runner has left", "directories", swept)
	}
	found, err := r.store.Load()
	if err != nil {
		return err
	}
	for key, saved := range found {
		a := &run{saved: saved, log: r.store.EndedEvents(key)}
		r.runs[key] = a
		if saved.Status.Phase.Ended() {
			continue
		}
		if a.log, err = r.store.Events(key); err != nil {
			return err
		}
		a.status().Message = "The sidecar was ended while the run waited or was carried out; nobody knows how far it came"
		for name, result := range a.status().Hosts {
			result.Phase = ansible.Lost
			a.status().Hosts[name] = result
		}
		r.end(a, ansible.Lost)
	}
	r.rotate()
	return nil
}
