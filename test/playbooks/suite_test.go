// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package playbooks

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/test/bench/host"
)

// image has libvirt's packages: installing them is tested on a bare host once, and takes longer than everything else.
const image = "debian12-libvirt"

var suite struct {
	bench  *host.Bench
	runner Runner
	// shared is for tests that leave a host as it was. Nobody onboards it.
	shared *host.Host
}

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	repository, err := filepath.Abs("../..")
	if err != nil {
		fmt.Fprintln(os.Stderr, "playbooks:", err)
		return 1
	}
	dir, err := os.MkdirTemp("", "caplv-playbooks-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "playbooks:", err)
		return 1
	}
	if suite.bench, err = host.New(repository, filepath.Join(host.DefaultDir, "playbooks")); err != nil {
		fmt.Fprintln(os.Stderr, "playbooks:", err)
		return 1
	}
	suite.runner = Runner{Repository: repository, Environment: ".venv", KeyFile: suite.bench.PrivateKeyFile(), Dir: dir}
	code := 1
	// The bench's key exists from its first host on, and tests without a host need it as well.
	if suite.shared, err = suite.bench.UpBare(context.Background(), "shared", image); err != nil {
		fmt.Fprintln(os.Stderr, "playbooks:", err)
	} else {
		code = m.Run()
	}
	if err := suite.bench.DownAll(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "playbooks: taking the hosts down:", err)
		code = 1
	}
	_ = os.RemoveAll(dir)
	return code
}

// up brings a host up that goes with the test.
func up(t *testing.T, name, image string) *host.Host {
	t.Helper()
	g := NewWithT(t)
	h, err := suite.bench.UpBare(t.Context(), name, image)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { NewWithT(t).Expect(h.Down(context.Background())).To(Succeed()) })
	return h
}

// variables are those that every test needs. There is no /dev/kvm on test hosts.
func variables(t *testing.T, mode string, more map[string]any) map[string]any {
	t.Helper()
	key, err := suite.runner.PublicKey()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	vars := map[string]any{
		"caplv_mode": mode, "caplv_virt_type": "qemu", "caplv_bridges": []string{"br0"}, "caplv_authorized_keys": []string{key},
		"caplv_objects_dir": filepath.Join(suite.runner.Dir, "objects"),
	}
	maps.Copy(vars, more)
	return vars
}

func only(h *host.Host) []*host.Host { return []*host.Host{h} }

// play runs a playbook to its end.
func play(t *testing.T, playbook string, h *host.Host, vars map[string]any, args ...string) *Result {
	t.Helper()
	result, err := suite.runner.Run(t.Context(), playbook, only(h), Options{Vars: vars, Args: args})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Logf("%s took %s, %d tasks", playbook, result.Took.Round(time.Second), result.Tasks)
	return result
}

func onboard(t *testing.T, h *host.Host, vars map[string]any, args ...string) *Result {
	t.Helper()
	return play(t, "onboard_host.yml", h, vars, args...)
}

func offboard(t *testing.T, h *host.Host, vars map[string]any) *Result {
	t.Helper()
	return play(t, "offboard_host.yml", h, vars)
}

// list lists a host once everything that starts by itself after boot has.
func list(t *testing.T, h *host.Host) Listing {
	t.Helper()
	g := NewWithT(t)
	g.Eventually(func() (string, error) { return h.Exec(t.Context(), "sh", "-c", "systemctl is-system-running || :") }).
		WithTimeout(time.Minute).WithPolling(200 * time.Millisecond).Should(Or(HavePrefix("running"), HavePrefix("degraded")))
	listing, err := List(t.Context(), h)
	g.Expect(err).NotTo(HaveOccurred())
	return listing
}

// lines shows a difference in the message of a failed assertion, one thing a line.
func lines(diff []string) string { return strings.Join(diff, "\n") }
