// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
)

// Options are how runs are carried out.
type Options struct {
	// Project is the directory of this repository, or of what an image has of it: ansible.cfg, galaxy.yml, playbooks and the collection.
	Project string
	// Playbooks is the directory of the playbooks.
	Playbooks string
	// Program is the path of ansible-playbook.
	Program string
	// WorkDir is for inventories, keys and passwords: in memory. ArtifactsDir is for what is left of runs.
	WorkDir, ArtifactsDir string
	// MaxRuns is how many processes of ansible-playbook run at once, MaxHosts how many hosts each may have, Forks how many of these it works
	// on at once, and MaxQueue how many runs may wait.
	MaxRuns, MaxHosts, Forks, MaxQueue int
	// Window is how long a run waits for others to be carried out with.
	Window time.Duration
	// Grace is how long ansible-playbook may take to end when it is told to.
	Grace time.Duration
	// ConnectTimeout is how long a connection to a host may take to be made.
	ConnectTimeout time.Duration
	// KeepRuns and KeepBytes bound what is left of runs that have ended, and MaxOutput what is kept of one run's output.
	KeepRuns             int
	KeepBytes, MaxOutput int64
	// Log receives what happens, without secrets.
	Log logr.Logger
}

// Defaults are options for a Pod with one CPU and 1 GiB.
func Defaults() Options {
	return Options{
		Project: ".", MaxRuns: 3, MaxHosts: 25, Forks: 10, MaxQueue: 1000, Window: time.Second, Grace: 15 * time.Second,
		ConnectTimeout: 15 * time.Second, KeepRuns: 1000, KeepBytes: 256 << 20, MaxOutput: 8 << 20,
	}
}

// complete fills in what follows from other options, and checks the rest.
func (o *Options) complete() error {
	var err error
	if o.Project, err = filepath.Abs(o.Project); err != nil {
		return err
	}
	if o.Playbooks == "" {
		o.Playbooks = filepath.Join(o.Project, "playbooks")
	}
	for _, path := range []*string{&o.Playbooks, &o.Program, &o.ArtifactsDir} {
		if *path == "" {
			return errors.New("the paths of ansible-playbook and the artifacts are needed")
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	for _, path := range []string{o.Playbooks, o.Program, filepath.Join(o.Project, "ansible.cfg")} {
		if _, err := os.Stat(path); err != nil {
			return err
		}
	}
	for name, n := range map[string]int{"runs": o.MaxRuns, "hosts a run": o.MaxHosts, "forks": o.Forks, "waiting runs": o.MaxQueue, "runs to keep": o.KeepRuns} {
		if n < 1 {
			return fmt.Errorf("the number of %s is %d; it must be at least 1", name, n)
		}
	}
	if o.KeepBytes < 1 || o.MaxOutput < 1 || o.Grace <= 0 || o.ConnectTimeout < time.Second || o.Window < 0 {
		return errors.New("bytes to keep, grace and timeout must be above 0")
	}
	return nil
}
