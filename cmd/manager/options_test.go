// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"testing"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

func TestTheWebhookServerSaysWhatItLacks(t *testing.T) {
	for _, row := range []struct {
		name string
		port int
		want string
	}{
		{"port 0 turns the webhooks off", 0, ""},
		{"a port that is none is refused", 65536, "--webhook-port is 65536"},
		{"a negative port is refused", -1, "--webhook-port is -1"},
		{"a directory without certificate is named with the way out", 9443, "--webhook-port=0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			dir := t.TempDir()
			o := &options{webhookPort: row.port, webhookCertDir: dir}
			server, err := o.webhookServer(nil)
			g.Expect(server).To(BeNil())
			if row.want == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(row.want)))
			if row.port == 9443 {
				g.Expect(err).To(MatchError(ContainSubstring(dir)))
			}
		})
	}
}

func TestTheManagerServesWebhooksOrSaysThatItDoesNot(t *testing.T) {
	for _, row := range []struct {
		name string
		port int
		// wantPath is the pattern that serves the webhook of machines; wantLog is what the log says.
		wantPath, wantLog string
	}{
		{"with a port", 9443, "/validate-infrastructure-cluster-x-k8s-io-v1alpha1-libvirtmachine", ""},
		{"without", 0, "", "Running without admission webhooks"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			var log string
			scheme := runtime.NewScheme()
			g.Expect(infrav1.AddToScheme(scheme)).To(Succeed())
			mgr, err := ctrl.NewManager(&rest.Config{Host: "127.0.0.1:1"}, ctrl.Options{
				Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
				Logger: funcr.New(func(_, args string) { log += args + "\n" }, funcr.Options{}),
			})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(setupWebhooks(mgr, &options{webhookPort: row.port})).To(Succeed())
			g.Expect(log).To(ContainSubstring(row.wantLog))
			if row.wantPath == "" {
				return
			}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, row.wantPath, http.NoBody)
			g.Expect(err).NotTo(HaveOccurred())
			_, pattern := mgr.GetWebhookServer().WebhookMux().Handler(request)
			g.Expect(pattern).To(Equal(row.wantPath))
		})
	}
}

func TestTheApproverIsOnOrOff(t *testing.T) {
	for _, row := range []struct {
		args    []string
		want    string
		refused bool
	}{
		{nil, csrApproverOn, false},
		{[]string{"--csr-approver=off"}, csrApproverOff, false},
		{[]string{"--csr-approver=false"}, "false", true},
		{[]string{"--csr-approver="}, "", true},
	} {
		g := NewWithT(t)
		o := &options{}
		fs := pflag.NewFlagSet("manager", pflag.ContinueOnError)
		o.addFlags(fs)
		g.Expect(fs.Parse(append(row.args, "--webhook-port=0"))).To(Succeed())
		g.Expect(o.csrApprover).To(Equal(row.want))
		_, err := o.managerOptions()
		if row.refused {
			g.Expect(err).To(MatchError(And(ContainSubstring("--csr-approver"), ContainSubstring("it must be on or off"))))
			continue
		}
		g.Expect(err).NotTo(HaveOccurred())
	}
}
