// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/test/bench/controlplane"
)

const repository = "../.."

// environments are the virtual environments of hack/ansible-deps.sh: the newest ansible-core, and the oldest that is supported.
var environments = []string{".venv", ".venv-el8"}

// suite is a real API server with the shipped CRDs and the objects of objects_test.go.
var suite struct {
	cp *controlplane.ControlPlane
	// viewer is the kubeconfig of a service account that may list the hosts of site-a and nothing else.
	viewer string
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctrl.SetLogger(logr.Discard())
	dir, err := os.MkdirTemp("", "caplv-inventory-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	defer func() {
		if suite.cp != nil {
			_ = suite.cp.Stop()
		}
	}()
	if err := setUp(ctx, dir); err != nil {
		fmt.Fprintln(os.Stderr, "setting up:", err)
		return 1
	}
	return m.Run()
}

func setUp(ctx context.Context, dir string) (err error) {
	for _, environment := range environments {
		if _, err := os.Stat(filepath.Join(repository, environment, "bin", "ansible-inventory")); err != nil {
			return fmt.Errorf("%w; make it with: hack/ansible-deps.sh", err)
		}
	}
	suite.cp, err = controlplane.Start(ctx, controlplane.Options{
		Dir: dir, CRDDir: filepath.Join(repository, "operator", "config", "crd"), WithoutCoreManager: true,
		AddToScheme: []func(*runtime.Scheme) error{infrav1.AddToScheme},
	})
	if err != nil {
		return err
	}
	return createObjects(ctx)
}

// access is what a kubeconfig says, as AWX gives it to an inventory: in the environment.
type access struct{ server, token, caFile string }

func accessOf(t *testing.T, kubeconfig string) access {
	t.Helper()
	g := NewWithT(t)
	config, err := clientcmd.LoadFromFile(kubeconfig)
	g.Expect(err).NotTo(HaveOccurred())
	current := config.Contexts[config.CurrentContext]
	cluster := config.Clusters[current.Cluster]
	file := filepath.Join(t.TempDir(), "ca.crt")
	g.Expect(os.WriteFile(file, cluster.CertificateAuthorityData, 0o600)).To(Succeed())
	return access{server: cluster.Server, token: config.AuthInfos[current.AuthInfo].Token, caFile: file}
}

// kubeconfigFor writes a kubeconfig like another one, but for its server.
func kubeconfigFor(t *testing.T, like, server string) string {
	t.Helper()
	g := NewWithT(t)
	config, err := clientcmd.LoadFromFile(like)
	g.Expect(err).NotTo(HaveOccurred())
	clusters := map[string]*clientcmdapi.Cluster{}
	for name, cluster := range config.Clusters {
		cluster.Server = server
		clusters[name] = cluster
	}
	config.Clusters = clusters
	path := filepath.Join(t.TempDir(), "kubeconfig")
	g.Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
	return path
}

// source writes an inventory source with these lines.
func source(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.libvirthosts.yml")
	content := strings.Join(append([]string{"plugin: caplv.caplv.libvirthosts"}, lines...), "\n") + "\n"
	NewWithT(t).Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	return path
}

// ansible runs a program of a virtual environment in the repository, with nothing of the caller's environment that could change
// what it does.
func ansible(t *testing.T, environment, program string, environ []string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(repository, environment, "bin", program))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = repository
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LC_ALL=C.UTF-8"}, environ...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), unwrapped(errs.String()), err
}

// unwrapped undoes the line breaks that Ansible puts into warnings.
func unwrapped(text string) string { return strings.Join(strings.Fields(text), " ") }

// listing is what ansible-inventory --list prints.
type listing struct {
	vars   map[string]map[string]any
	groups map[string][]string
}

func list(t *testing.T, environment, source string, environ ...string) listing {
	t.Helper()
	g := NewWithT(t)
	stdout, stderr, err := ansible(t, environment, "ansible-inventory", environ, "-i", source, "--list")
	g.Expect(err).NotTo(HaveOccurred(), stderr)
	g.Expect(stderr).NotTo(ContainSubstring("WARNING"))
	l, err := parse([]byte(stdout))
	g.Expect(err).NotTo(HaveOccurred())
	return l
}

func parse(text []byte) (listing, error) {
	var content map[string]json.RawMessage
	if err := json.Unmarshal(text, &content); err != nil {
		return listing{}, err
	}
	var meta struct {
		HostVars map[string]map[string]any `json:"hostvars"`
	}
	if err := json.Unmarshal(content["_meta"], &meta); err != nil {
		return listing{}, err
	}
	l := listing{vars: map[string]map[string]any{}, groups: map[string][]string{}}
	for host, vars := range meta.HostVars {
		plain, ok := withoutMarks(vars).(map[string]any)
		if !ok {
			return listing{}, errors.New("the variables of a host are no mapping")
		}
		// ansible-core 2.16 adds the local facts of a host that it has not asked for any.
		delete(plain, "ansible_local")
		l.vars[host] = plain
	}
	for name, raw := range content {
		var group struct{ Hosts []string }
		if err := json.Unmarshal(raw, &group); err != nil {
			return listing{}, err
		}
		slices.Sort(group.Hosts)
		if len(group.Hosts) > 0 {
			l.groups[name] = group.Hosts
		}
	}
	return l, nil
}

// withoutMarks replaces {"__ansible_unsafe": TEXT}, as ansible-core 2.16 writes a text that is no template, by the text.
func withoutMarks(value any) any {
	switch v := value.(type) {
	case map[string]any:
		if text, ok := v["__ansible_unsafe"]; ok {
			return text
		}
		for key, inner := range v {
			v[key] = withoutMarks(inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = withoutMarks(inner)
		}
	}
	return value
}

// eachEnvironment runs a test with each version of ansible-core.
func eachEnvironment(t *testing.T, test func(t *testing.T, environment string)) {
	t.Helper()
	for _, environment := range environments {
		t.Run(environment, func(t *testing.T) { test(t, environment) })
	}
}
