// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	controlplanev1 "github.com/caplv/caplv/api/controlplane/v1alpha1"
	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/test/bench/controlplane"
	"github.com/caplv/caplv/test/bench/host"
	"github.com/caplv/caplv/test/bench/operator"
)

// suite is what the tests share: one control plane and one operator; each test has its own host.
var suite struct {
	repository string
	cp         *controlplane.ControlPlane
	operator   *operator.Operator
	sidecar    *operator.Sidecar
	hosts      *host.Bench
	image      string
}

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "caplv-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	teardown, err := setUp(ctx, dir)
	defer teardown()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e: setting up:", err)
		return 1
	}
	code := m.Run()
	if code == 0 {
		_ = os.RemoveAll(dir)
	} else {
		fmt.Fprintln(os.Stderr, "e2e: the logs are in", dir)
	}
	return code
}

// setUp starts everything. The function that it returns stops what was started, also after an error.
func setUp(ctx context.Context, dir string) (func(), error) {
	var undo []func()
	teardown := func() {
		for _, u := range slices.Backward(undo) {
			u()
		}
	}
	var err error
	if suite.repository, err = filepath.Abs("../.."); err != nil {
		return teardown, err
	}
	if suite.image, err = host.GuestImage(ctx, suite.repository); err != nil {
		return teardown, err
	}
	if suite.hosts, err = host.New(suite.repository, filepath.Join(host.DefaultDir, "e2e")); err != nil {
		return teardown, err
	}
	undo = append(undo, func() {
		if err := suite.hosts.DownAll(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "e2e: taking the hosts down:", err)
		}
	})
	if suite.cp, err = controlplane.Start(ctx, controlplane.Options{
		Dir: dir, CRDDir: filepath.Join(suite.repository, "operator", "config", "crd"), NodesServerName: nodesServerName,
		AddToScheme: []func(*runtime.Scheme) error{infrav1.AddToScheme, controlplanev1.AddToScheme},
	}); err != nil {
		return teardown, err
	}
	undo = append(undo, func() {
		if err := suite.cp.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "e2e: stopping the control plane:", err)
		}
	})
	options := operator.Options{Repository: suite.repository, Dir: dir, FailPoints: true}
	if suite.sidecar, err = operator.NewSidecar(ctx, suite.cp, options); err != nil {
		return teardown, err
	}
	if err := suite.sidecar.Start(ctx); err != nil {
		return teardown, err
	}
	options.RunnerSocket = suite.sidecar.Socket()
	if suite.operator, err = operator.New(ctx, suite.cp, options); err != nil {
		return teardown, err
	}
	return teardown, suite.operator.Start(ctx)
}
