// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Command benchrunner submits a run for each of many hosts at once to the sidecar, as it is by default and with one process a host, and
// prints what both take. It needs root, since the hosts' SSH servers do.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/ansible/sidecar"
	"github.com/caplv/caplv/test/playbooks/fleet"
)

func main() {
	hosts := flag.Int("hosts", 50, "hosts to submit runs for")
	flag.Parse()
	if err := run(*hosts); err != nil {
		fmt.Fprintln(os.Stderr, "benchrunner:", err)
		os.Exit(1)
	}
}

// result is what a sidecar took for all hosts.
type result struct {
	took  time.Duration
	usage fleet.Usage
}

func run(count int) error {
	dir, err := os.MkdirTemp("", "caplv")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	f := fleet.New(filepath.Join(dir, "fleet"))
	defer f.Close()
	var hosts []ansible.Host
	for i := range count {
		server, err := f.Start(fleet.Options{Name: fmt.Sprintf("host-%d.ns", i)})
		if err != nil {
			return err
		}
		hosts = append(hosts, server.Host)
	}
	program := filepath.Join(dir, "ansible-runner")
	build := exec.Command("go", "build", "-o", program, "./cmd/ansible-runner")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return err
	}
	fmt.Printf("%d hosts, a playbook of 8 tasks\n%-22s %8s %12s %10s %10s %10s\n", count, "", "seconds", "runs/minute", "playbooks", "processes", "MiB")
	each := []string{"--max-hosts-per-run", "1", "--max-runs", strconv.Itoa(count), "--batch-window", "0s"}
	var results []result
	for _, c := range []struct {
		name string
		args []string
	}{{"sidecar's defaults", nil}, {"one process a host", each}} {
		r, err := measure(filepath.Join(dir, strconv.Itoa(len(results))), program, hosts, c.args)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		results = append(results, r)
		fmt.Printf("%-22s %8.1f %12.1f %10d %10d %10d\n", c.name, r.took.Seconds(), float64(count)/r.took.Minutes(), r.usage.Playbooks, r.usage.Processes, r.usage.Memory>>20)
	}
	ours, theirs := results[0], results[1]
	fmt.Printf("One process a host takes %.2f times as long, and %.2f times the memory.\n",
		theirs.took.Seconds()/ours.took.Seconds(), float64(theirs.usage.Memory)/float64(ours.usage.Memory))
	return nil
}

// measure submits a run for each host, and waits for all.
func measure(dir, program string, hosts []ansible.Host, args []string) (result, error) {
	repository, err := filepath.Abs(".")
	if err != nil {
		return result{}, err
	}
	work, socket := filepath.Join(dir, "w"), filepath.Join(dir, "runner.sock")
	cmd := exec.Command(program, append([]string{
		"--socket", socket, "--work-dir", work, "--artifacts-dir", filepath.Join(dir, "a"), "--project", repository, "--log-level", "warn",
		"--playbooks", filepath.Join(repository, "test", "playbooks", "runner", "playbooks"),
		"--ansible-playbook", filepath.Join(repository, ".venv", "bin", "ansible-playbook"),
	}, args...)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return result{}, err
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	client := sidecar.New(socket)
	for ctx.Err() == nil {
		if _, err := client.Status(ctx, ansible.Ref{Key: "none"}); ansible.ReasonOf(err) == ansible.UnknownRun {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	stop := fleet.Watch(cmd.Process.Pid, work, time.Second)
	start := time.Now()
	for _, host := range hosts {
		request := ansible.Request{Key: host.Name, Playbook: ansible.OnboardHost, Hosts: []ansible.Host{host}, Deadline: 30 * time.Minute}
		if _, err := client.Submit(ctx, request); err != nil {
			return result{}, err
		}
	}
	for _, host := range hosts {
		ref := ansible.Ref{Key: host.Name}
		if err := client.Follow(ctx, ref, 0, func(ansible.Event) {}); err != nil {
			return result{}, err
		}
		status, err := client.Status(ctx, ref)
		if err != nil {
			return result{}, err
		}
		if status.Phase != ansible.Succeeded {
			return result{}, fmt.Errorf("%s ended as %s: %+v", host.Name, status.Phase, status.Hosts)
		}
	}
	return result{took: time.Since(start), usage: stop()}, nil
}
