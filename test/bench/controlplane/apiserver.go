// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// apiServerTimeout is generous because a busy machine with two cores needs more than envtest's 20 seconds.
const apiServerTimeout = 2 * time.Minute

// startAPIServer starts etcd and kube-apiserver and installs Cluster API's CRDs and webhook configurations.
func (cp *ControlPlane) startAPIServer(ctx context.Context, scheme *runtime.Scheme) error {
	capiDir, err := moduleDir(ctx, "sigs.k8s.io/cluster-api")
	if err != nil {
		return err
	}
	existing := false
	cp.env = &envtest.Environment{
		Scheme:                   scheme,
		UseExistingCluster:       &existing,
		ErrorIfCRDPathMissing:    true,
		CRDDirectoryPaths:        []string{filepath.Join(capiDir, "core", "config", "crd", "bases")},
		ControlPlaneStartTimeout: apiServerTimeout,
		ControlPlaneStopTimeout:  apiServerTimeout,
	}
	if !cp.options.WithoutCoreManager {
		if err := cp.pointToCoreManager(filepath.Join(capiDir, "core", "config", "webhook", "manifests.yaml")); err != nil {
			return err
		}
	}
	if err := cp.configureProcesses(ctx); err != nil {
		return err
	}
	if cp.config, err = cp.env.Start(); err != nil {
		// envtest reports a process that died at once as a timeout; the log says why.
		return fmt.Errorf("starting kube-apiserver: %w\n%s\n%s", err, cp.logTail("etcd"), cp.logTail("kube-apiserver"))
	}
	cp.kubeconfig = filepath.Join(cp.options.Dir, "admin.kubeconfig")
	return os.WriteFile(cp.kubeconfig, cp.env.KubeConfig, 0o600)
}

// configureProcesses tells envtest which binaries to run, with which flags, and where their data and logs go.
func (cp *ControlPlane) configureProcesses(ctx context.Context) error {
	plane := &cp.env.ControlPlane
	plane.Etcd = &envtest.Etcd{DataDir: filepath.Join(cp.options.Dir, "etcd")}
	server := plane.GetAPIServer()
	server.CertDir = filepath.Join(cp.options.Dir, "pki")

	var err error
	if cp.kubectl, err = toolPath(ctx, "kubectl"); err != nil {
		return err
	}
	plane.KubectlPath = cp.kubectl
	if plane.Etcd.Path, err = cp.mortal(ctx, "etcd"); err != nil {
		return err
	}
	if server.Path, err = cp.mortal(ctx, "kube-apiserver"); err != nil {
		return err
	}

	etcdLog, err := cp.openLog("etcd")
	if err != nil {
		return err
	}
	plane.Etcd.Out, plane.Etcd.Err = etcdLog, etcdLog
	serverLog, err := cp.openLog("kube-apiserver")
	if err != nil {
		return err
	}
	server.Out, server.Err = serverLog, serverLog

	// Set, not Append: RBAC is in envtest's defaults, and kube-apiserver refuses to see it twice.
	server.Configure().Set("authorization-mode", "Node", "RBAC")
	for flag, values := range cp.options.APIServerFlags {
		server.Configure().Set(flag, values...)
	}
	return cp.serveNodes()
}

// mortal returns a wrapper around a tool that dies together with this process. envtest has no way to ask for that, so
// that an aborted test run would leave etcd and kube-apiserver behind.
func (cp *ControlPlane) mortal(ctx context.Context, tool string) (string, error) {
	path, err := toolPath(ctx, tool)
	if err != nil {
		return "", err
	}
	quoted := "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	wrapper := filepath.Join(cp.options.Dir, "bin", tool)
	script := "#!/bin/sh\nexec setpriv --pdeathsig KILL -- " + quoted + ` "$@"` + "\n"
	return wrapper, os.WriteFile(wrapper, []byte(script), 0o700)
}

func (cp *ControlPlane) openLog(name string) (*os.File, error) {
	f, err := os.OpenFile(cp.logPath(name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		cp.logs = append(cp.logs, f)
	}
	return f, err
}

func (cp *ControlPlane) logPath(name string) string {
	return filepath.Join(cp.options.Dir, name+".log")
}

// logTail returns the last two kilobytes of a log, under a heading.
func (cp *ControlPlane) logTail(name string) string {
	const length = 2048
	b, err := os.ReadFile(cp.logPath(name))
	if err != nil {
		return fmt.Sprintf("--- %s: no log: %v", name, err)
	}
	return fmt.Sprintf("--- end of %s.log:\n%s", name, b[max(0, len(b)-length):])
}
