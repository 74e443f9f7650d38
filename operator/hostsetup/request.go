// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostsetup

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/hosturi"
)

const (
	defaultTimeout = time.Hour
	// objectsTag is of the tasks that write LibvirtHosts: the one that the run is for is there.
	objectsTag = "cluster_objects"
)

// HostName is the host's name in the inventory.
func HostName(lh *infrav1.LibvirtHost) string { return lh.Name + "." + lh.Namespace }

// Variables are those of onboard_host. Keys are public keys, each as in a .pub file; the list may not be empty.
func Variables(lh *infrav1.LibvirtHost, uri hosturi.URI, keys []string) map[string]any {
	b := lh.Spec.Bootstrap
	variables := map[string]any{
		"caplv_mode":            uri.Path[1:],
		"caplv_user":            uri.User,
		"caplv_authorized_keys": list(keys),
		"caplv_authorized_from": list(b.AuthorizedFrom),
		"caplv_virt_type":       string(or(lh.Spec.VirtType, infrav1.VirtTypeKVM)),
		"caplv_package_policy":  string(or(b.PackagePolicy, infrav1.PackagesInstall)),
	}
	if uri.Path == hosturi.PathSession {
		variables["caplv_bridges"] = list(b.Bridges)
	}
	var pools []any
	for _, p := range b.Pools {
		pool := map[string]any{"name": string(p.Name)}
		if p.Path != "" {
			pool["path"] = p.Path
		}
		pools = append(pools, pool)
	}
	if pools != nil {
		variables["caplv_pools"] = pools
	}
	return variables
}

// Request is what a backend is asked for. Of the variables, off-boarding needs none: the host's own record has them.
func (v View) Request(run *infrav1.BootstrapRun, target ansible.Host, variables map[string]any) ansible.Request {
	request := ansible.Request{
		Key: run.Key, Playbook: ansible.Playbook(run.Playbook), Hosts: []ansible.Host{target}, Check: run.Mode == infrav1.BootstrapCheck,
		Deadline: defaultTimeout, Submitted: run.SubmittedAt.Time,
	}
	if b := v.Host.Spec.Bootstrap; b != nil && b.Timeout != nil {
		request.Deadline = b.Timeout.Duration
	}
	if request.Playbook == ansible.OnboardHost {
		request.Variables, request.SkipTags = maps.Clone(variables), []string{objectsTag}
		if v.KeepsPackages(run) {
			request.Variables["caplv_package_policy"] = string(infrav1.PackagesCheck)
		}
	}
	return request
}

// DesiredState is a hash of what onboard_host is to bring about with these variables and this version of the roles.
func DesiredState(variables map[string]any) (string, error) {
	return digest(map[string]any{"roles": ansible.RolesVersion, "variables": variables})
}

// Inputs is a hash of what else a run depends on. Versions are those of the Secrets that it uses, which tell that one was changed; no content is in it.
func Inputs(lh *infrav1.LibvirtHost, versions ...string) (string, error) {
	inputs := map[string]any{"uri": lh.Spec.URI, "fingerprint": lh.Spec.HostKeyFingerprint, "versions": versions}
	if b := lh.Spec.Bootstrap; b != nil {
		inputs["user"], inputs["port"], inputs["backend"], inputs["awx"], inputs["timeout"] = b.User, b.Port, b.Backend, b.AWX, b.Timeout
	}
	return digest(inputs)
}

func digest(value any) (string, error) {
	// Keys of maps are sorted.
	data, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:16]), nil
}

// NewRun is the record of a run that is to begin.
func NewRun(v View, a Action) *infrav1.BootstrapRun {
	run := &infrav1.BootstrapRun{
		Playbook: string(a.Playbook), Mode: modeOf(a.Check), Backend: or(v.Host.Spec.Bootstrap.Backend, infrav1.BackendSidecar),
		DesiredStateHash: v.Desired, InputHash: v.Inputs, Attempt: 1, Phase: infrav1.RunSubmitting, SubmittedAt: metav1.NewTime(v.Now.Truncate(time.Second)),
	}
	if last := lastRun(v.Host); v.repeats(last, a) && last.InputHash == v.Inputs {
		run.Attempt = last.Attempt + 1
	}
	// The UID keeps it from the keys of an earlier object of this name, the time from those of a status that was lost, and nanoseconds from each other.
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%s\n%s\n%s", v.Host.UID, HostName(v.Host), run.Playbook, run.Mode, v.Desired, v.Inputs))
	run.Key = fmt.Sprintf("host-%s-%d-%d", hex.EncodeToString(sum[:8]), v.Now.UnixNano(), run.Attempt)
	return run
}

func list(texts []string) []any {
	values := make([]any, 0, len(texts))
	for _, text := range texts {
		values = append(values, text)
	}
	return values
}

func or[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}
