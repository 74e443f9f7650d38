// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/naming"
	"github.com/caplv/caplv/test/bench/operator"
)

const (
	ignition       = `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/etc/marker","contents":{"source":"data:,perf"}}]}}`
	stepSeconds    = "caplv_machine_step_duration_seconds"
	requestSeconds = "rest_client_request_duration_seconds"
	// settled is how long after a change the controllers have done what follows from it.
	settled = time.Second
)

// round is one machine that came to life.
type round struct {
	// total is from the creation of the LibvirtMachine until Ready, or from the first command by hand to the end of the last.
	total time.Duration
	// steps are the times on the host, by step, and counts how often each was done.
	steps  map[string]time.Duration
	counts map[string]int
	// reading and writing are the times of the operator's requests to the API server.
	reading, writing time.Duration
	// requests and execs count the operator's requests to the API server and SSH execs.
	requests, execs float64
}

// prepareMachine creates the Machine and its bootstrap data. The LibvirtMachine that it names comes later, so that the
// time that Cluster API's controllers take is not in the measurement.
func (b *bench) prepareMachine(ctx context.Context, name string) (*clusterv1.Machine, error) {
	secret := &corev1.Secret{ObjectMeta: meta(name + "-bootstrap"), Type: clusterv1.ClusterSecretType,
		Data: map[string][]byte{"value": []byte(ignition), "format": []byte("ignition")}}
	if err := b.client.Create(ctx, secret); err != nil {
		return nil, err
	}
	machine := &clusterv1.Machine{ObjectMeta: meta(name), Spec: clusterv1.MachineSpec{
		ClusterName: clusterName,
		Bootstrap:   clusterv1.Bootstrap{DataSecretName: new(secret.Name)},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: infrav1.GroupVersion.Group, Kind: "LibvirtMachine", Name: name,
		},
	}}
	return machine, b.client.Create(ctx, machine)
}

// libvirtMachine is owned by its Machine already, as Cluster API would have it a moment later.
func libvirtMachine(machine *clusterv1.Machine, ephemeral bool) *infrav1.LibvirtMachine {
	m := meta(machine.Name)
	m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine"))}
	lm := &infrav1.LibvirtMachine{ObjectMeta: m, Spec: infrav1.LibvirtMachineSpec{
		HostRef:  infrav1.LibvirtHostReference{Name: hostName},
		Domain:   infrav1.DomainSpec{VCPUs: ptr.To[int32](1), MemoryMB: ptr.To[int32](256), Firmware: infrav1.FirmwareBIOS},
		RootDisk: infrav1.RootDiskSpec{Size: *resource.NewQuantity(rootBytes, resource.BinarySI), BaseImage: imageName},
		Network: infrav1.NetworkSpec{
			Type: infrav1.NetworkTypeBridge, Name: "br0", Addresses: []infrav1.AddressCIDR{"192.0.2.50/24"}, Gateway: "192.0.2.1",
			DNS: infrav1.DNSSpec{Nameservers: []infrav1.IPAddress{"192.0.2.1"}},
		},
		BootstrapFormat: infrav1.BootstrapFormatIgnition,
	}}
	if ephemeral {
		lm.Spec.RootDisk.EphemeralPool, lm.Spec.RootDisk.EphemeralPoolSize = true, tmpfsSize
		lm.Spec.RootDisk.BaseImagePool = "default"
	} else {
		lm.Spec.RootDisk.StoragePool = "default"
	}
	return lm
}

// byOperator has the operator create a machine and waits until it runs.
func (b *bench) byOperator(ctx context.Context, name string, ephemeral bool) (round, error) {
	machine, err := b.prepareMachine(ctx, name)
	if err != nil {
		return round{}, err
	}
	// Cluster API looks for the LibvirtMachine in vain; that should not be in the way of what is measured.
	time.Sleep(settled)
	before, err := b.scraper.Scrape(ctx)
	if err != nil {
		return round{}, err
	}
	watching, stop := context.WithTimeout(ctx, 3*time.Minute)
	defer stop()
	watch, err := b.client.Watch(watching, &infrav1.LibvirtMachineList{}, client.InNamespace(namespace))
	if err != nil {
		return round{}, err
	}
	defer watch.Stop()
	lm := libvirtMachine(machine, ephemeral)
	start := time.Now()
	if err := b.client.Create(ctx, lm); err != nil {
		return round{}, err
	}
	last := "no condition"
	for event := range watch.ResultChan() {
		seen, ok := event.Object.(*infrav1.LibvirtMachine)
		if !ok || seen.Name != name {
			continue
		}
		if conditions.IsTrue(seen, infrav1.MachineReadyCondition) {
			total := time.Since(start)
			// At once: Ready wakes the reconciler again, and what it does then has nothing to do with it.
			after, err := b.scraper.Scrape(ctx)
			return difference(before, after, total), err
		}
		last = conditions.GetReason(seen, infrav1.MachineReadyCondition) + ": " + conditions.GetMessage(seen, infrav1.MachineReadyCondition)
	}
	return round{}, fmt.Errorf("machine %s does not run (%s); the operator's log: %s", name, last, b.operator.LogPath())
}

// difference is what the operator did between two readings of its metrics.
func difference(before, after operator.Metrics, total time.Duration) round {
	r := round{total: total, steps: map[string]time.Duration{}, counts: map[string]int{}}
	delta := func(family string, labels ...string) float64 {
		return after.Sum(family, labels...) - before.Sum(family, labels...)
	}
	for _, step := range after.Values(stepSeconds, "step") {
		if n := after.Count(stepSeconds, "step", step) - before.Count(stepSeconds, "step", step); n > 0 {
			r.counts[step], r.steps[step] = int(n), seconds(delta(stepSeconds, "step", step))
		}
	}
	r.reading, r.writing = seconds(delta(requestSeconds, "verb", "GET")), seconds(delta(requestSeconds, "verb", "PATCH"))
	r.requests = delta("rest_client_requests_total")
	r.execs = delta("caplv_ssh_execs_total")
	return r
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// remove deletes a machine and waits until nothing is left of it.
func (b *bench) remove(ctx context.Context, name string) error {
	if err := b.client.Delete(ctx, &clusterv1.Machine{ObjectMeta: meta(name)}); err != nil {
		return err
	}
	if err := b.client.Delete(ctx, &corev1.Secret{ObjectMeta: meta(name + "-bootstrap")}); err != nil {
		return err
	}
	return b.until(ctx, "machine "+name+" is gone", func() (bool, error) {
		for _, o := range []client.Object{&infrav1.LibvirtMachine{}, &clusterv1.Machine{}} {
			err := b.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o)
			if !apierrors.IsNotFound(err) {
				return false, err
			}
		}
		return true, nil
	})
}

// compare creates machines by the operator and by hand in turn.
func (b *bench) compare(ctx context.Context, ephemeral bool, rounds int) (*comparison, error) {
	c := &comparison{ephemeral: ephemeral, dial: b.hand.dialed}
	var pattern recipe
	for i := range rounds + 1 {
		name := fmt.Sprintf("m%d%t", i, ephemeral)
		r, err := b.byOperator(ctx, name, ephemeral)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			if pattern, err = b.copyRecipe(ctx, naming.Machine(namespace, clusterName, name), ephemeral); err != nil {
				return nil, err
			}
		}
		if err := b.remove(ctx, name); err != nil {
			return nil, err
		}
		each, err := b.byHand(ctx, pattern, false)
		if err != nil {
			return nil, err
		}
		once, err := b.byHand(ctx, pattern, true)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			continue // The first round fills caches: QEMU's capabilities, the image, the operator's.
		}
		c.operator, c.each, c.once = append(c.operator, r), append(c.each, each), append(c.once, once)
		fmt.Printf("round %d of %d, %s: operator %s, by hand %s, by hand in one virsh %s\n",
			i, rounds, c.pool(), milliseconds(r.total), milliseconds(each.total), milliseconds(once.total))
	}
	return c, nil
}

// stepNames lists the steps of several runs.
func stepNames(runs ...[]round) []string {
	names := map[string]bool{}
	for _, list := range runs {
		for _, r := range list {
			for step := range r.steps {
				names[step] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}
