// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/hostconn"
	"github.com/caplv/caplv/operator/hosts"
)

const (
	fleetSize = 20
	// fleetBound is how long the good half of the fleet may take, on a slow machine.
	fleetBound = 30 * time.Second
)

// fleetConnector leads to hosts in memory, and to black holes by SSH.
type fleetConnector struct {
	good map[string]probedHost
	ssh  hosts.Connector
}

func (c *fleetConnector) Connect(ctx context.Context, lh *infrav1.LibvirtHost) (hosts.Host, error) {
	if h, ok := c.good[lh.Name]; ok {
		return h, nil
	}
	return c.ssh.Connect(ctx, lh)
}
func (c *fleetConnector) Forget(key client.ObjectKey) { c.ssh.Forget(key) }

// blackHoles accept connections and never answer.
type blackHoles struct {
	// hanging counts the connections that they hold at the moment.
	hanging atomic.Int32
}

// add returns the address of another one.
func (b *blackHoles) add(f *fleet) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	f.Expect(err).NotTo(HaveOccurred())
	f.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			b.hanging.Add(1)
			go func() {
				defer b.hanging.Add(-1)
				defer func() { _ = conn.Close() }()
				// Until the other side gives up.
				for buffer := make([]byte, 1024); err == nil; {
					_, err = conn.Read(buffer)
				}
			}()
		}
	}()
	return l.Addr().String()
}

// TestHostsThatNeverAnswerDoNotHoldUpTheOthers has 20 hosts of each kind: the good ones get their machines, and rid of them,
// while every black hole has a connection hanging.
func TestHostsThatNeverAnswerDoNotHoldUpTheOthers(t *testing.T) {
	black := &blackHoles{}
	conns := hostconn.NewPool(hostconn.Options{DialTimeout: 6 * time.Second})
	f := newFleet(t, 0, func(secrets client.Reader) hosts.Connector {
		c := &fleetConnector{good: map[string]probedHost{}, ssh: hosts.NewPool(secrets, conns)}
		for i := range fleetSize {
			c.good[fmt.Sprintf("good-%d", i)] = probedHost{newFakeHost()}
		}
		return c
	})
	t.Cleanup(func() { _ = conns.Close() })
	f.prepare()
	for i := range fleetSize {
		name := fmt.Sprintf("black-%d", i)
		f.addHost(name, black.add(f))
		f.Expect(f.addMachine(name, name)).To(Succeed())
	}
	f.Eventually(black.hanging.Load, fleetBound, 20*time.Millisecond).Should(BeNumerically("==", fleetSize))
	start := time.Now()
	for i := range fleetSize {
		name := fmt.Sprintf("good-%d", i)
		f.addHost(name, name+".example.com")
		f.Expect(f.addMachine(name, name)).To(Succeed())
	}
	f.Eventually(func() map[string]int { return f.states("good-", infrav1.MachineReadyCondition) }, fleetBound, 50*time.Millisecond).
		Should(Equal(map[string]int{"True/Running": fleetSize}))
	t.Logf("the good hosts had their machines after %s, with %d connections hanging", time.Since(start).Round(time.Millisecond), black.hanging.Load())

	f.Eventually(func() map[string]int { return f.states("black-", infrav1.MachineReadyCondition) }, time.Minute, 100*time.Millisecond).
		Should(Equal(map[string]int{"False/" + infrav1.TimeoutReason: fleetSize}), "a black hole is named as what it is")

	black.deletions(f)
}

// deletions deletes all machines. Those of black holes are made to have been created there.
func (b *blackHoles) deletions(f *fleet) {
	for i := range fleetSize {
		lm := &infrav1.LibvirtMachine{}
		key := client.ObjectKey{Namespace: "default", Name: fmt.Sprintf("black-%d", i)}
		f.Eventually(func() error {
			if err := f.c.Get(f.t.Context(), key, lm); err != nil {
				return err
			}
			lm.Status.DomainUUID, lm.Status.NodeName = identity(lm, "x").UUID, "default-prod-"+lm.Name
			return f.c.Status().Update(f.t.Context(), lm)
		}, fleetBound, 20*time.Millisecond).Should(Succeed())
		f.Expect(f.c.Delete(f.t.Context(), lm)).To(Succeed())
	}
	f.Eventually(b.hanging.Load, fleetBound, 20*time.Millisecond).Should(BeNumerically("==", fleetSize))
	start := time.Now()
	for i := range fleetSize {
		f.Expect(f.c.Delete(f.t.Context(), &infrav1.LibvirtMachine{ObjectMeta: fleetMeta(fmt.Sprintf("good-%d", i))})).To(Succeed())
	}
	f.Eventually(func() map[string]int { return f.states("good-", infrav1.MachineReadyCondition) }, fleetBound, 50*time.Millisecond).Should(BeEmpty())
	f.t.Logf("the good hosts were rid of their machines after %s, with %d connections hanging", time.Since(start).Round(time.Millisecond), b.hanging.Load())
	f.Eventually(func() map[string]int { return f.states("black-", infrav1.CleanupStalledCondition) }, time.Minute, 100*time.Millisecond).
		Should(Equal(map[string]int{"True/" + infrav1.TimeoutReason: fleetSize}))
}
