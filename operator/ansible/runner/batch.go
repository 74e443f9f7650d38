// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/apenella/go-ansible/v2/pkg/playbook"

	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/ansible/runner/events"
	"github.com/caplv/caplv/operator/ansible/runner/process"
	"github.com/caplv/caplv/operator/ansible/runner/scrub"
	"github.com/caplv/caplv/operator/ansible/runner/workdir"
)

// batch is one process of ansible-playbook, and the runs that it carries out.
type batch struct {
	runs   []*run
	byHost map[string]*run
	cancel context.CancelCauseFunc
	// malformed counts messages that could not be read, and complete is set by the last one.
	malformed, complete atomic.Int64
}

// endedError is the cause of a context that was ended with a phase.
type endedError ansible.Phase

func (e endedError) Error() string { return string(e) }

// end ends the processes; the runs get this phase.
func (b *batch) end(phase ansible.Phase) { b.cancel(endedError(phase)) }

// dispatch begins what can begin. Runner.mutex is held.
func (r *Runner) dispatch() {
	for !r.stopping && len(r.batches) < r.options.MaxRuns {
		items, wait := r.queue.Take(r.clock())
		if items == nil {
			if wait > 0 {
				r.wake(wait)
			}
			return
		}
		b := &batch{byHost: map[string]*run{}}
		for _, item := range items {
			a := r.runs[item.Key]
			a.batch = b
			b.runs = append(b.runs, a)
			for name := range a.hosts {
				b.byHost[name] = a
			}
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		b.cancel = cancel
		r.batches[b] = struct{}{}
		r.batchesFinished.Go(func() {
			defer cancel(nil)
			r.carryOut(ctx, b)
		})
	}
}

// wake dispatches after a while.
func (r *Runner) wake(wait time.Duration) {
	if r.timer != nil {
		r.timer.Stop()
	}
	r.timer = time.AfterFunc(wait, func() {
		r.mutex.Lock()
		defer r.mutex.Unlock()
		r.dispatch()
	})
}

// carryOut carries a batch out, and ends its runs.
func (r *Runner) carryOut(ctx context.Context, b *batch) {
	tail := &tailWriter{}
	r.begin(b)
	exit, err := r.execute(ctx, b, tail)
	e := ending{complete: b.complete.Load() > 0, exit: exit}
	if cause, ok := errors.AsType[endedError](context.Cause(ctx)); ok {
		e.ended = ansible.Phase(cause)
	}
	if n := b.malformed.Load(); n > 0 {
		r.log.Info("Dropped events that could not be read", "events", n)
	}
	r.finish(b, e, tail.String(), err)
}

// begin says that the runs are Running.
func (r *Runner) begin(b *batch) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, a := range b.runs {
		now := r.clock()
		a.status().Phase, a.status().Message, a.status().Started = ansible.Running, "", now
		r.metrics.waited(now.Sub(a.item.Since))
		r.logged(r.save(a), a)
	}
}

// execute runs ansible-playbook in a directory of its own.
func (r *Runner) execute(ctx context.Context, b *batch, tail *tailWriter) (exit process.Exit, err error) {
	first := b.runs[0].request
	var hosts []ansible.Host
	var keys, secrets []string
	for _, a := range b.runs {
		hosts = append(hosts, a.request.Hosts...)
		keys = append(keys, a.request.Key)
		secrets = append(secrets, a.request.Secrets()...)
	}
	dir, err := r.root.Create(first.Variables, hosts)
	if err != nil {
		return exit, err
	}
	defer func() { err = errors.Join(err, dir.Remove()) }()
	file, err := r.store.Output(keys)
	if err != nil {
		return exit, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	output := scrub.New(secrets).Writer(&limitWriter{next: file, left: r.options.MaxOutput, tail: tail})
	defer func() { err = errors.Join(err, output.Close()) }()
	r.log.Info("Starting ansible-playbook", "batch", dir.ID, "playbook", first.Playbook, "runs", keys)
	ctx, cancel := context.WithTimeoutCause(ctx, first.Deadline, endedError(ansible.TimedOut))
	defer cancel()
	exit, err = process.Run(ctx, process.Spec{
		Program: r.options.Program, Playbook: r.options.Playbooks + "/" + string(first.Playbook) + ".yml",
		Options: playbook.AnsiblePlaybookOptions{
			Inventory: dir.Inventory(), Check: first.Check, Diff: first.Check, Forks: strconv.Itoa(r.options.Forks), SkipTags: strings.Join(first.SkipTags, ","),
		},
		Dir: dir.Path(), Env: r.environment(dir), Marker: dir.Path(), Grace: r.options.Grace,
		Output: output, Tell: func(message []byte) { r.observe(b, message) },
	})
	if timeout, ok := errors.AsType[endedError](context.Cause(ctx)); ok && err == nil {
		b.end(ansible.Phase(timeout))
	}
	r.log.Info("Ended ansible-playbook", "batch", dir.ID, "exit", exit.String())
	return exit, err
}

// environment is all that ansible-playbook has: nothing of this process's own, and no secret.
func (r *Runner) environment(dir *workdir.Dir) []string {
	ssh := []string{
		"UserKnownHostsFile=" + dir.KnownHosts(), "GlobalKnownHostsFile=/dev/null", "StrictHostKeyChecking=yes", "UpdateHostKeys=no",
		"IdentitiesOnly=yes", "IdentityAgent=none", "PasswordAuthentication=no", "ServerAliveInterval=10", "ServerAliveCountMax=3",
	}
	return []string{
		"PATH=" + searchPath(&r.options), "HOME=" + dir.Home(), "TMPDIR=" + dir.Temp(), "LC_ALL=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1",
		"CAPLV_RUN_DIR=" + dir.Path(), "CAPLV_EVENTS_FD=" + strconv.Itoa(process.EventsFD),
		"ANSIBLE_CONFIG=" + r.options.Project + "/ansible.cfg", "ANSIBLE_HOME=" + dir.Home() + "/.ansible", "ANSIBLE_LOCAL_TEMP=" + dir.Temp(),
		"ANSIBLE_CALLBACKS_ENABLED=caplv.caplv.run_events", "ANSIBLE_INVENTORY_ENABLED=ansible.builtin.yaml", "ANSIBLE_NOCOLOR=1",
		"ANSIBLE_HOST_KEY_CHECKING=1", fmt.Sprintf("ANSIBLE_TIMEOUT=%d", int(r.options.ConnectTimeout.Seconds())),
		"ANSIBLE_SSH_CONTROL_PATH_DIR=" + dir.ControlPaths(),
		"ANSIBLE_SSH_ARGS=-F /dev/null -o ControlMaster=auto -o ControlPersist=60s -o " + strings.Join(ssh, " -o "),
	}
}

// observe takes a message of the callback plugin in.
func (r *Runner) observe(b *batch, data []byte) {
	m, err := events.Parse(data)
	if err != nil {
		b.malformed.Add(1)
		return
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	switch m.Type {
	case events.End:
		b.complete.Add(1)
	case events.Start:
		for _, a := range b.runs {
			for _, h := range a.hosts {
				h.Known = m.Known
			}
		}
	case events.Play:
		for _, a := range b.runs {
			r.logged(a.log.Add(ansible.Event{Time: r.clock(), Type: ansible.PlayStarted, Play: a.scrub.Text(m.Play)}), a)
		}
	default:
		// A task that was delegated to somewhere else is none of a host's.
		if a := b.byHost[m.Host]; a != nil {
			r.logged(a.apply(m, r.clock()), a)
		}
	}
}

// logged logs an error of the artifacts: a full disk must not end a run.
func (r *Runner) logged(err error, a *run) {
	if err != nil {
		r.log.Error(err, "Writing the artifacts of a run failed", "run", a.saved.Status.Key)
	}
}
