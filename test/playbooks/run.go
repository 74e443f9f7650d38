// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package playbooks runs the playbooks on real hosts. What tests and measurements share is here.
package playbooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/caplv/caplv/test/bench/host"
)

// Runner runs playbooks of the repository.
type Runner struct {
	// Repository is the checkout's path.
	Repository string
	// Environment is the directory of the virtual environment that has Ansible, relative to the repository: .venv or .venv-el8.
	Environment string
	// KeyFile is the private key that the hosts accept for root.
	KeyFile string
	// Dir is for inventories and results, and the working directory of Ansible.
	Dir string
}

// Options are what one run differs in.
type Options struct {
	// Vars are extra variables. They travel in a file, as data.
	Vars map[string]any
	// Args are further arguments of ansible-playbook.
	Args []string
	// CutAtTask kills the run and everything that it started here at the start of its nth task, CutAfter later.
	CutAtTask int
	CutAfter  time.Duration
}

// Stats is what Ansible counted for one host.
type Stats struct {
	OK          int `json:"ok"`
	Changed     int `json:"changed"`
	Unreachable int `json:"unreachable"`
	Failures    int `json:"failures"`
}

// Result is what a run did.
type Result struct {
	// Output is what ansible-playbook printed.
	Output string `json:"-"`
	// Took is how long it ran.
	Took time.Duration `json:"-"`
	// Hosts has the counts for each host.
	Hosts map[string]Stats `json:"hosts"`
	// Changed and Failed are the names of tasks, the latter with their messages.
	Changed []string `json:"changed"`
	Failed  []string `json:"failed"`
	// Tasks is how many tasks were started.
	Tasks int `json:"tasks"`
}

// ErrCut is returned for a run that was killed as CutAtTask says.
var ErrCut = errors.New("the run was cut")

// Run runs a playbook, such as onboard_host.yml, on hosts. The error of one that fails has its output; its Result is there as well.
func (r *Runner) Run(ctx context.Context, playbook string, hosts []*host.Host, o Options) (*Result, error) {
	dir, err := os.MkdirTemp(r.Dir, "run")
	if err != nil {
		return nil, err
	}
	inventory, err := r.writeJSON(dir, "inventory.json", r.inventory(hosts))
	if err != nil {
		return nil, err
	}
	vars, err := r.writeJSON(dir, "vars.json", o.Vars)
	if err != nil {
		return nil, err
	}
	result := filepath.Join(dir, "result.json")
	args := append([]string{"-i", inventory, "-e", "@" + vars, filepath.Join(r.Repository, "playbooks", playbook)}, o.Args...)
	cmd := exec.CommandContext(ctx, filepath.Join(r.Repository, r.Environment, "bin", "ansible-playbook"), args...)
	cmd.Dir = r.Dir
	cmd.Env = append(os.Environ(), r.environment(dir, result, o)...)
	// A group of its own: who kills it must not kill the tests.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// The connections that it leaves for its successor may hold its output open.
	cmd.WaitDelay = 5 * time.Second
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	start := time.Now()
	err = cmd.Run()
	return r.result(result, output.String(), time.Since(start), err, o)
}

func (r *Runner) result(path, output string, took time.Duration, runErr error, o Options) (*Result, error) {
	res := &Result{Output: output, Took: took}
	if exit, ok := errors.AsType[*exec.ExitError](runErr); ok {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() && o.CutAtTask > 0 {
			return res, ErrCut
		}
	}
	content, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(content, res)
	}
	if runErr != nil && !errors.Is(runErr, exec.ErrWaitDelay) {
		return res, fmt.Errorf("ansible-playbook: %w\n%s", runErr, output)
	}
	return res, err
}

// inventory says how the hosts are reached. Their keys are known, and verified.
func (r *Runner) inventory(hosts []*host.Host) map[string]any {
	entries := map[string]any{}
	for _, h := range hosts {
		entries[h.Name] = map[string]any{
			"ansible_host": h.Address, "ansible_user": "root", "ansible_ssh_private_key_file": r.KeyFile,
			"ansible_ssh_common_args": "-o UserKnownHostsFile=" + h.KnownHosts() + " -o StrictHostKeyChecking=yes",
		}
	}
	return map[string]any{"all": map[string]any{"hosts": entries}}
}

func (r *Runner) environment(dir, result string, o Options) []string {
	return []string{
		"ANSIBLE_CONFIG=" + filepath.Join(r.Repository, "ansible.cfg"),
		"ANSIBLE_COLLECTIONS_PATH=" + filepath.Join(r.Repository, "collections"),
		"ANSIBLE_CALLBACK_PLUGINS=" + filepath.Join(r.Repository, "test", "playbooks", "callback"),
		"ANSIBLE_CALLBACKS_ENABLED=caplv_probe",
		"ANSIBLE_LOCAL_TEMP=" + filepath.Join(dir, "tmp"),
		"ANSIBLE_NOCOLOR=1",
		"CAPLV_PROBE_RESULT=" + result,
		"CAPLV_PROBE_CUT=" + strconv.Itoa(o.CutAtTask),
		"CAPLV_PROBE_CUT_AFTER=" + strconv.FormatFloat(o.CutAfter.Seconds(), 'f', -1, 64),
	}
}

func (r *Runner) writeJSON(dir, name string, content any) (string, error) {
	if vars, ok := content.(map[string]any); ok && vars == nil {
		content = map[string]any{}
	}
	text, err := json.Marshal(content)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, text, 0o600)
}

// EndLeftovers ends on a host what a run that was cut has left there: its connections and its modules.
func EndLeftovers(ctx context.Context, h *host.Host) error {
	// A module that came through the connection is a python3 without arguments. The brackets keep the pattern from this shell.
	_, err := h.Exec(ctx, "sh", "-c", `for i in 1 2 3 4 5 6 7 8 9 10; do
		pkill -9 -f '[s]shd(-session)?: root|[a]nsible|^/usr/bin/[p]ython3' || exit 0
		sleep 0.2
	done
	exit 1`)
	return err
}

// PublicKey is the key that goes with the private key of the bench.
func (r *Runner) PublicKey() (string, error) {
	content, err := os.ReadFile(r.KeyFile + ".pub")
	return strings.TrimSpace(string(content)), err
}
