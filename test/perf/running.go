// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/test/bench/operator"
)

const (
	// touchInterval is longer than a reconcile, so that each touch wakes one of its own.
	touchInterval = 250 * time.Millisecond
	// virshIdle is longer than the operator keeps a virsh without work.
	virshIdle = 12 * time.Second
	// coldTouches are slow, and their bytes hardly differ.
	coldTouches = 3
)

// usage is what a number of reconciles took.
type usage struct {
	reconciles     float64
	cpu            time.Duration // Of the whole manager.
	time           time.Duration // In the reconciles.
	sent, received float64       // Bytes over SSH.
	execs          float64
	requests       float64
}

// cost is what the reconcile of a running machine takes: with the virsh of the one before, and with one that has to be started.
type cost struct {
	warm, cold usage
	// idle is the manager's use of the CPU during as much time without a reconcile as the warm ones took, all together.
	idle time.Duration
}

// reconcileCost touches a running machine.
func (b *bench) reconcileCost(ctx context.Context, touches int) (*cost, error) {
	const name = "running"
	if _, err := b.byOperator(ctx, name, true); err != nil {
		return nil, err
	}
	c := &cost{}
	var err error
	if c.cold, err = b.touch(ctx, name, coldTouches, virshIdle, true); err != nil {
		return nil, err
	}
	if c.warm, err = b.touch(ctx, name, touches, touchInterval, true); err != nil {
		return nil, err
	}
	time.Sleep(virshIdle) // The virsh ends now, and not in what is measured.
	idle, err := b.touch(ctx, name, touches, touchInterval, false)
	if err != nil {
		return nil, err
	}
	c.idle = idle.cpu
	if c.warm.reconciles == 0 || c.cold.reconciles == 0 {
		return nil, errors.New("no reconcile of the running machine was seen")
	}
	return c, b.remove(ctx, name)
}

// touch wakes the reconciler as often as it is told, pausing before each time and after the last, or does nothing for as
// long.
func (b *bench) touch(ctx context.Context, name string, times int, pause time.Duration, really bool) (usage, error) {
	time.Sleep(settled)
	before, err := b.scraper.Scrape(ctx)
	if err != nil {
		return usage{}, err
	}
	for i := range times {
		time.Sleep(pause)
		if !really {
			continue
		}
		lm := &infrav1.LibvirtMachine{ObjectMeta: meta(name)}
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"caplv.test/touch":"`+strconv.Itoa(i)+pause.String()+`"}}}`))
		if err := b.client.Patch(ctx, lm, patch); err != nil {
			return usage{}, fmt.Errorf("touching %s: %w", name, err)
		}
	}
	time.Sleep(max(touchInterval, settled))
	after, err := b.scraper.Scrape(ctx)
	return usageBetween(before, after), err
}

func usageBetween(before, after operator.Metrics) usage {
	delta := func(family string, labels ...string) float64 {
		return after.Sum(family, labels...) - before.Sum(family, labels...)
	}
	return usage{
		reconciles: delta("controller_runtime_reconcile_total", "controller", "libvirtmachine"),
		cpu:        seconds(delta("process_cpu_seconds_total")),
		time:       seconds(delta("controller_runtime_reconcile_time_seconds", "controller", "libvirtmachine")),
		sent:       delta("caplv_ssh_bytes_total", "direction", "sent"),
		received:   delta("caplv_ssh_bytes_total", "direction", "received"),
		execs:      delta("caplv_ssh_execs_total"),
		requests:   delta("rest_client_requests_total"),
	}
}
