// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os/exec"

	"github.com/spf13/pflag"

	"github.com/caplv/caplv/operator/ansible/runner"
)

// options are the flags.
type options struct {
	runner         runner.Options
	socket         string
	allowedUIDs    []uint
	metricsAddress string
	logLevel       string
	logFormat      string
	showVersion    bool
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	r := &o.runner
	*r = runner.Defaults()
	fs.StringVar(&o.socket, "socket", "/run/caplv/ansible/runner.sock", "Path of the Unix socket that the operator talks to.")
	fs.UintSliceVar(&o.allowedUIDs, "allow-uid", nil, "Numbers of accounts that may use the socket, besides the own one.")
	fs.StringVar(&o.metricsAddress, "metrics-addr", "", "Address of /metrics over HTTP, such as :9441. Empty: on the socket.")
	fs.StringVar(&r.Project, "project", "/usr/share/caplv", "Directory with ansible.cfg, galaxy.yml, roles, plugins and collections.")
	fs.StringVar(&r.Playbooks, "playbooks", "", "Directory of the playbooks. Empty: playbooks in --project.")
	fs.StringVar(&r.Program, "ansible-playbook", "ansible-playbook", "Program to run playbooks with.")
	fs.StringVar(&r.WorkDir, "work-dir", "/run/caplv/work", "Directory for keys, passwords and variables of runs, which goes with them. It should be in memory.")
	fs.StringVar(&r.ArtifactsDir, "artifacts-dir", "/var/lib/caplv/ansible", "Directory for status, events and output of runs.")
	fs.IntVar(&r.MaxRuns, "max-runs", r.MaxRuns, "Processes of ansible-playbook that run at once.")
	fs.IntVar(&r.MaxHosts, "max-hosts-per-run", r.MaxHosts, "Hosts that one process of ansible-playbook may have.")
	fs.IntVar(&r.Forks, "forks", r.Forks, "Hosts that one process of ansible-playbook works on at once.")
	fs.IntVar(&r.MaxQueue, "max-queue", r.MaxQueue, "Runs that may wait; more are refused.")
	fs.DurationVar(&r.Window, "batch-window", r.Window, "How long a run waits for others like it, to be carried out together.")
	fs.DurationVar(&r.Grace, "grace", r.Grace, "How long ansible-playbook may take to end when it is told to.")
	fs.DurationVar(&r.ConnectTimeout, "connect-timeout", r.ConnectTimeout, "How long connecting to a host may take.")
	fs.IntVar(&r.KeepRuns, "keep-runs", r.KeepRuns, "Runs that have ended and whose artifacts are kept.")
	fs.Int64Var(&r.KeepBytes, "keep-bytes", r.KeepBytes, "Bytes of artifacts of ended runs that are kept.")
	fs.Int64Var(&r.MaxOutput, "max-output", r.MaxOutput, "Bytes of one run's output that are kept.")
	fs.StringVar(&o.logLevel, "log-level", "info", "Least severe level that is logged: debug, info, warn or error.")
	fs.StringVar(&o.logFormat, "log-format", "json", "Format of the log: json or console.")
	fs.BoolVar(&o.showVersion, "version", false, "Print the version and exit.")
}

// complete finds the program, and checks what the runner does not.
func (o *options) complete() ([]uint32, error) {
	path, err := exec.LookPath(o.runner.Program)
	if err != nil {
		return nil, fmt.Errorf("--ansible-playbook: %w", err)
	}
	o.runner.Program = path
	uids := make([]uint32, 0, len(o.allowedUIDs))
	for _, uid := range o.allowedUIDs {
		if uid >= 1<<32-1 {
			return nil, fmt.Errorf("--allow-uid has %d, which is not the number of an account", uid)
		}
		uids = append(uids, uint32(uid))
	}
	return uids, nil
}
