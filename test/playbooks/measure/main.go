// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Command measure prints how long onboarding takes: a first run and a second, which changes nothing, on one host and on several
// at once. It needs root. Installing packages is left out with the default image; a busy machine makes all of it longer.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/caplv/caplv/test/bench/host"
	"github.com/caplv/caplv/test/playbooks"
)

const timeLimit = 60 * time.Minute

func main() {
	many := flag.Int("hosts", 10, "hosts to onboard at once")
	image := flag.String("image", "debian12-libvirt", "image of the hosts")
	mode := flag.String("mode", "session", "system or session")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	err := run(ctx, *many, *image, *mode)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, many int, image, mode string) (err error) {
	repository, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	bench, err := host.New(repository, filepath.Join(host.DefaultDir, "measure"))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "caplv-measure-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir), bench.DownAll(context.WithoutCancel(ctx))) }()
	var hosts []*host.Host
	for i := range many + 1 {
		h, err := bench.UpBare(ctx, fmt.Sprintf("measure-%02d", i), image)
		if err != nil {
			return err
		}
		hosts = append(hosts, h)
	}
	runner := playbooks.Runner{Repository: repository, Environment: ".venv", KeyFile: bench.PrivateKeyFile(), Dir: dir}
	one, err := measure(ctx, runner, mode, hosts[:1])
	if err != nil {
		return err
	}
	all, err := measure(ctx, runner, mode, hosts[1:])
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "onboard_host.yml, %s mode, in s\tone host\t%d hosts\tratio\t\n", mode, many)
	for i, name := range []string{"first run", "second run"} {
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%.2f\t\n", name, one[i].Seconds(), all[i].Seconds(), all[i].Seconds()/one[i].Seconds())
	}
	return t.Flush()
}

// measure onboards hosts twice.
func measure(ctx context.Context, runner playbooks.Runner, mode string, hosts []*host.Host) (took [2]time.Duration, err error) {
	key, err := runner.PublicKey()
	if err != nil {
		return took, err
	}
	vars := map[string]any{
		"caplv_mode": mode, "caplv_virt_type": "qemu", "caplv_bridges": []string{"br0"}, "caplv_authorized_keys": []string{key},
		"caplv_objects_dir": filepath.Join(runner.Dir, "objects"),
	}
	for i := range took {
		result, err := runner.Run(ctx, "onboard_host.yml", hosts, playbooks.Options{Vars: vars})
		if err != nil {
			return took, err
		}
		if i == 1 && len(result.Changed) > 0 {
			return took, fmt.Errorf("the second run changed something: %v", result.Changed)
		}
		took[i] = result.Took
	}
	return took, nil
}
