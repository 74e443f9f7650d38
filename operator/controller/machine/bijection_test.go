// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/hosts"
)

const (
	claimedHosts = 50
	// cacheLag is what the reconcilers' caches take for each event, so that what is read gets older while there is much to do.
	cacheLag = 5 * time.Millisecond
	// claimBound is how long the claims may take to settle, on a slow machine.
	claimBound = 2 * time.Minute
)

// guardedConnector gives each LibvirtHost a host in memory, which notices a second domain. There is no lock around the
// hosts: that no two machines use one at the same time is what is tested.
type guardedConnector struct {
	mu      sync.Mutex
	hosts   map[string]probedHost
	doubles []string
	// down are the hosts that cannot be reached.
	down map[string]bool
}

type guardedHost struct {
	probedHost
	doubled func()
}

func (h guardedHost) DefineDomain(ctx context.Context, xml string) error {
	if len(h.domains) > 0 {
		h.doubled()
	}
	return h.probedHost.DefineDomain(ctx, xml)
}

func (c *guardedConnector) Connect(_ context.Context, lh *infrav1.LibvirtHost) (hosts.Host, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down[lh.Name] {
		return nil, hosts.NewConfigError(infrav1.UnreachableReason, "no route to host")
	}
	if _, known := c.hosts[lh.Name]; !known {
		c.hosts[lh.Name] = probedHost{newFakeHost()}
	}
	return guardedHost{probedHost: c.hosts[lh.Name], doubled: func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.doubles = append(c.doubles, lh.Name)
	}}, nil
}

func (c *guardedConnector) Forget(client.ObjectKey) {}

// TestAFleetIsABijection creates two machines for each of 50 hosts at once, while every read of the reconcilers lags behind
// the API server: each host gets exactly one of its machines, and the other one when the first is gone.
func TestAFleetIsABijection(t *testing.T) {
	connector := &guardedConnector{hosts: map[string]probedHost{}}
	f := newFleet(t, cacheLag, func(client.Reader) hosts.Connector { return connector })
	f.prepare()
	var wg sync.WaitGroup
	for i := range claimedHosts {
		lhost := fmt.Sprintf("h%d", i)
		f.addHost(lhost, lhost+".example.com")
		for r := range 2 {
			wg.Go(func() {
				if err := f.addMachine(fmt.Sprintf("m%d-%d", i, r), lhost); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()

	first := f.expectBijection(connector)
	for _, name := range first {
		f.Expect(f.c.Delete(t.Context(), &infrav1.LibvirtMachine{ObjectMeta: fleetMeta(name)})).To(Succeed())
	}
	for lhost, name := range f.expectBijection(connector) {
		f.Expect(name).NotTo(Equal(first[lhost]))
	}
}

// expectBijection waits until each host has one running machine and every other machine says whom it waits for. It returns the
// machine of each host.
func (f *fleet) expectBijection(connector *guardedConnector) map[string]string {
	f.t.Helper()
	var running map[string]string
	f.Eventually(func(g Gomega) {
		machines := &infrav1.LibvirtMachineList{}
		g.Expect(f.c.List(f.t.Context(), machines)).To(Succeed())
		running = map[string]string{}
		for i := range machines.Items {
			m := &machines.Items[i]
			g.Expect(m.DeletionTimestamp).To(BeNil())
			if conditions.IsTrue(m, infrav1.MachineReadyCondition) {
				g.Expect(running).NotTo(HaveKey(m.Spec.HostRef.Name))
				running[m.Spec.HostRef.Name] = m.Name
			}
		}
		g.Expect(running).To(HaveLen(claimedHosts))
		for i := range machines.Items {
			m := &machines.Items[i]
			if holder := running[m.Spec.HostRef.Name]; holder != m.Name {
				g.Expect(conditions.GetReason(m, infrav1.MachineReadyCondition)).To(Equal(infrav1.HostInUseReason))
				g.Expect(conditions.GetMessage(m, infrav1.MachineReadyCondition)).To(ContainSubstring("LibvirtMachine " + holder))
			}
		}
	}, claimBound, 500*time.Millisecond).Should(Succeed())
	connector.mu.Lock()
	defer connector.mu.Unlock()
	f.Expect(connector.doubles).To(BeEmpty())
	claimed := &infrav1.LibvirtHostList{}
	f.Expect(f.c.List(f.t.Context(), claimed)).To(Succeed())
	for i := range claimed.Items {
		lh := &claimed.Items[i]
		f.Expect(lh.Status.MachineRef).NotTo(BeNil())
		f.Expect(lh.Status.MachineRef.Name).To(Equal(running[lh.Name]))
		f.Expect(connector.hosts[lh.Name].domains).To(HaveLen(1))
	}
	return running
}
