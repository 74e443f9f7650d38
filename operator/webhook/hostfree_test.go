// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/controller/index"
	"github.com/caplv/caplv/operator/webhook"
)

func TestOneMachineAHost(t *testing.T) {
	g := NewWithT(t)
	c, ns := suite.cp.Client(), namespace(t)
	older := typed(g, machineYAML, &infrav1.LibvirtMachine{}, ns, "older")
	older.Finalizers = []string{infrav1.MachineFinalizer}
	g.Expect(c.Create(t.Context(), older)).To(Succeed())
	second := func() *infrav1.LibvirtMachine { return typed(g, machineYAML, &infrav1.LibvirtMachine{}, ns, "second") }

	// The webhooks list from a cache, which sees the first machine a moment later.
	g.Eventually(func() error { return c.Create(t.Context(), second(), client.DryRunAll) }, 10*time.Second, 50*time.Millisecond).Should(MatchError(And(
		ContainSubstring(`spec.hostRef.name: Invalid value: "host": LibvirtMachine older uses this host already`),
		ContainSubstring("name another LibvirtHost, or delete older first"))))

	elsewhere := second()
	elsewhere.Spec.HostRef.Name = "another"
	g.Expect(c.Create(t.Context(), elsewhere, client.DryRunAll)).To(Succeed(), "another host is free")
	abroad := second()
	abroad.Namespace = namespace(t)
	g.Expect(c.Create(t.Context(), abroad, client.DryRunAll)).To(Succeed(), "a host of that name in another namespace is another host")

	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(older), older)).To(Succeed())
	older.Spec.NodeLabels = map[string]string{"a": "b"}
	g.Expect(c.Update(t.Context(), older)).To(Succeed(), "a machine is not in its own way")

	g.Expect(c.Delete(t.Context(), older)).To(Succeed())
	g.Expect(c.Create(t.Context(), second())).To(Succeed(), "at once: a machine that is being deleted will make room")
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(older), older)).To(Succeed())
	g.Expect(older.DeletionTimestamp).NotTo(BeNil())
}

// TestAStaleViewRefusesNothing is about what cannot be provoked in a real API server: the cache is older than the deletion.
func TestAStaleViewRefusesNothing(t *testing.T) {
	for _, row := range []struct {
		name string
		// stored is whether the machine of the stale view is still stored.
		stored      bool
		get         func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error
		wantWarning string
		wantErr     string
	}{
		{name: "the other machine is there", stored: true, wantErr: "LibvirtMachine older uses this host already"},
		{name: "the other machine is gone"},
		{name: "the other machine cannot be read", get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("etcd has no leader")
		}, wantWarning: "spec.hostRef.name: could not look whether another machine uses LibvirtHost host"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			scheme := runtime.NewScheme()
			g.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
			older := typed(g, machineYAML, &infrav1.LibvirtMachine{}, "default", "older")
			stale := fake.NewClientBuilder().WithScheme(scheme).WithObjects(older).
				WithIndex(&infrav1.LibvirtMachine{}, index.MachineByHost, index.HostOfMachine).Build()
			live := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{Get: row.get})
			if row.stored {
				live.WithObjects(older.DeepCopy())
			}
			v := &webhook.Machine{Client: stale, APIReader: live.Build()}
			warnings, err := v.ValidateCreate(t.Context(), typed(g, machineYAML, &infrav1.LibvirtMachine{}, "default", "second"))
			if row.wantErr != "" {
				g.Expect(err).To(MatchError(ContainSubstring(row.wantErr)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			if row.wantWarning == "" {
				g.Expect(warnings).To(BeEmpty())
				return
			}
			g.Expect(warnings).To(ConsistOf(HavePrefix(row.wantWarning)))
		})
	}
}
