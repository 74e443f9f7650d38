// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ansible is the contract of a run: a playbook of this repository, carried out on hosts by somebody who has
// Ansible. Two backends fulfil it: the sidecar (package sidecar) and AWX (package awx). What the roles do is not known here.
package ansible

import (
	"context"
	"time"
)

// Playbook is the name of a playbook, without its ending. There are no others that can be run.
type Playbook string

const (
	// OnboardHost sets a host up.
	OnboardHost Playbook = "onboard_host"
	// HardenSession hardens session mode on a host that is set up.
	HardenSession Playbook = "harden_session"
	// StageBaseImage puts base images into the storage pools of a host that is set up.
	StageBaseImage Playbook = "stage_base_image"
	// VerifyHost checks a host as the operator does, and changes nothing.
	VerifyHost Playbook = "verify_host"
	// OffboardHost removes from a host what onboarding has added.
	OffboardHost Playbook = "offboard_host"
)

// Playbooks are all that can be run.
var Playbooks = []Playbook{OnboardHost, HardenSession, StageBaseImage, VerifyHost, OffboardHost}

// Host is where a playbook is run, and how it gets there.
type Host struct {
	// Name is the host's name in the inventory: NAME.NAMESPACE of its LibvirtHost, as the inventory plugin has it.
	Name string `json:"name"`
	// Address is a name or an IP address, without a port.
	Address string `json:"address"`
	// Port is the port of its SSH server.
	Port int `json:"port"`
	// User is whom Ansible logs in as.
	User string `json:"user"`
	// HostKeys are the host's public keys, each as "TYPE BASE64". Only they are accepted; at least one is needed.
	HostKeys []string `json:"hostKeys"`
	// PrivateKey is the SSH private key of User, in a format of OpenSSH. AWX has a credential of its own instead.
	PrivateKey string `json:"privateKey,omitempty"`
	// BecomePassword is what sudo asks User for; empty where it asks for nothing.
	BecomePassword string `json:"becomePassword,omitempty"`
	// Variables are for this host alone. They win over those of the request.
	Variables map[string]any `json:"variables,omitempty"`
}

// Request asks for a run.
type Request struct {
	// Key identifies the run: whoever asks twice with one key gets one run. It consists of letters, digits, "-", "." and "_", at most 128.
	Key string `json:"key"`
	// Playbook is what to run.
	Playbook Playbook `json:"playbook"`
	// Hosts are where, at least one.
	Hosts []Host `json:"hosts"`
	// Variables are data: no text in them is evaluated as a template. Requests of one playbook with equal Variables, Check and SkipTags
	// may be carried out together.
	Variables map[string]any `json:"variables,omitempty"`
	// SkipTags are the tags of tasks to leave out.
	SkipTags []string `json:"skipTags,omitempty"`
	// Check is a run that changes nothing, and tells what it would change.
	Check bool `json:"check,omitempty"`
	// Deadline is how long the run may take once it has begun. Nanoseconds in JSON.
	Deadline time.Duration `json:"deadline"`
	// Submitted is when the caller recorded, where its own end cannot lose it, that it would ask. A backend that has no keys of its own looks
	// from then on for what it has begun already.
	Submitted time.Time `json:"submitted"`
}

// Ref finds a run again.
type Ref struct {
	// Key is the request's.
	Key string `json:"key"`
	// ID is the backend's own name for the run, where it has one: the number of AWX's job.
	ID string `json:"id,omitempty"`
}

// Phase is where a run, or its part on one host, is.
type Phase string

const (
	// Queued waits for its turn: for the host, which another run works on, or for one of the slots.
	Queued Phase = "Queued"
	// Running has begun.
	Running Phase = "Running"
	// Succeeded ended as it should.
	Succeeded Phase = "Succeeded"
	// Failed ended with a task that failed.
	Failed Phase = "Failed"
	// Unreachable ended since Ansible could not connect, or lost its connection.
	Unreachable Phase = "Unreachable"
	// TimedOut was ended at its deadline.
	TimedOut Phase = "TimedOut"
	// Canceled was ended by Cancel, or with the backend's orderly end.
	Canceled Phase = "Canceled"
	// Lost ended and nobody knows how: its process was killed, or the backend was. It is never taken for a success.
	Lost Phase = "Lost"
)

// Ended says whether nothing follows any more.
func (p Phase) Ended() bool { return p != Queued && p != Running }

// Status is how far a run is.
type Status struct {
	Ref

	// Playbook and Check are the request's.
	Playbook Playbook `json:"playbook"`
	Check    bool     `json:"check,omitempty"`
	// Phase is the worst of its hosts', once it has ended.
	Phase Phase `json:"phase"`
	// Message says why a run ended that failed as a whole, or what it waits for. It has no secrets.
	Message string `json:"message,omitempty"`
	// Started and Finished are zero until then.
	Started  time.Time `json:"started,omitzero"`
	Finished time.Time `json:"finished,omitzero"`
	// TasksDone counts tasks that were begun and TasksKnown those that are known to be in the playbook so far, which grows while roles are included.
	TasksDone  int `json:"tasksDone,omitempty"`
	TasksKnown int `json:"tasksKnown,omitempty"`
	// Task is the name of the current task, and Progress what it says of its own progress, such as "rhcos.qcow2: 34 %".
	Task     string `json:"task,omitempty"`
	Progress string `json:"progress,omitempty"`
	// Hosts are the results by name of host.
	Hosts map[string]HostResult `json:"hosts,omitempty"`
	// AnsibleVersion and RolesVersion say with what it was carried out, where that is known.
	AnsibleVersion string `json:"ansibleVersion,omitempty"`
	RolesVersion   string `json:"rolesVersion,omitempty"`
}

// HostResult is what a run did on one host.
type HostResult struct {
	// Phase is the host's own.
	Phase Phase `json:"phase"`
	// OK, Changed, Failed, Unreachable and Skipped count tasks. OK includes Changed, as Ansible counts.
	OK          int `json:"ok"`
	Changed     int `json:"changed"`
	Failed      int `json:"failed"`
	Unreachable int `json:"unreachable"`
	Skipped     int `json:"skipped"`
	// ChangedTasks are the first of the tasks that changed something or, in a check, would.
	ChangedTasks []string `json:"changedTasks,omitempty"`
	// FailedTask is the task that ended the run on this host, and Message what it said, without secrets and at most 1 KiB.
	FailedTask string `json:"failedTask,omitempty"`
	Message    string `json:"message,omitempty"`
}

// EventType is what an Event tells of.
type EventType string

const (
	// PlayStarted and TaskStarted name Play and Task.
	PlayStarted EventType = "play"
	TaskStarted EventType = "task"
	// HostResulted is the outcome of Task on Host.
	HostResulted EventType = "result"
	// Progressed has a new Message from Task on Host.
	Progressed EventType = "progress"
	// RunEnded is the last one.
	RunEnded EventType = "end"
)

// Event is something that happened in a run.
type Event struct {
	// Sequence counts from 1.
	Sequence int64     `json:"sequence"`
	Time     time.Time `json:"time"`
	Type     EventType `json:"type"`
	Play     string    `json:"play,omitempty"`
	Task     string    `json:"task,omitempty"`
	Host     string    `json:"host,omitempty"`
	// Outcome is of a HostResulted: ok, changed, failed, unreachable or skipped. Of a RunEnded, it is the Phase.
	Outcome string `json:"outcome,omitempty"`
	// Message has no secrets and at most 1 KiB.
	Message    string `json:"message,omitempty"`
	TasksDone  int    `json:"tasksDone,omitempty"`
	TasksKnown int    `json:"tasksKnown,omitempty"`
}

// Backend carries out runs. Its methods return within seconds, except for Follow; their errors are of type *Error.
type Backend interface {
	// Submit asks for a run, unless one with this key is there; then it returns that one.
	Submit(ctx context.Context, request Request) (Ref, error)
	// Status tells how far a run is. A run that the backend has no record of is an error with reason UnknownRun.
	Status(ctx context.Context, ref Ref) (Status, error)
	// Cancel ends a run with all its processes. It returns before they are gone; a run that has ended is left alone.
	Cancel(ctx context.Context, ref Ref) error
	// Follow calls tell for each event with a Sequence above after, and returns nil after the last one.
	Follow(ctx context.Context, ref Ref, after int64, tell func(Event)) error
}
