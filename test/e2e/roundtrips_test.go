// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// virshIdle is longer than the operator keeps a virsh without work.
const virshIdle = 15 * time.Second

func TestRoundTripsAreFew(t *testing.T) {
	w := newWorld(t)
	token := w.metricsToken()
	w.expectHost("True/HostReady")
	lm := w.libvirtMachine("worker01")
	ephemeral(&lm.Spec)

	// The long-lived virsh of the host's probe ends when there is no work, so that the machine's own is counted.
	time.Sleep(virshIdle)
	before := w.execs(token)
	w.createMachine(lm)
	w.expectMachine("worker01", infrav1.MachineReadyCondition, "True/Running")
	provisioning := w.execs(token) - before
	t.Logf("provisioning took %v SSH execs", provisioning)
	w.g.Expect(provisioning).To(And(BeNumerically(">=", 2), BeNumerically("<=", 4)))

	// A later reconcile has to start another one.
	time.Sleep(virshIdle)
	before = w.execs(token)
	generation := w.observedReconciles(token)
	lm = w.machine("worker01")
	base := lm.DeepCopy()
	lm.Annotations = map[string]string{"e2e.caplv.io/touch": "1"}
	w.g.Expect(suite.cp.Client().Patch(t.Context(), lm, client.MergeFrom(base))).To(Succeed())
	w.g.Eventually(func() float64 { return w.observedReconciles(token) }, provisionTime, poll).Should(BeNumerically(">", generation))
	w.g.Eventually(func() float64 { return w.execs(token) - before }, 10*time.Second, poll).Should(BeNumerically("==", 1))
	w.g.Consistently(func() float64 { return w.execs(token) - before }, 3*time.Second, poll).Should(BeNumerically("==", 1))

	w.deleteMachine("worker01")
	w.expectGone("worker01")
}

func TestAnIdleHostSeesNoTraffic(t *testing.T) {
	w := newWorld(t)
	token := w.metricsToken()
	w.expectHost("True/HostReady")
	before := w.execs(token)
	w.g.Consistently(func() float64 { return w.execs(token) - before }, 20*time.Second, time.Second).Should(BeZero())
}

// metricsToken is the token of a service account that may read the operator's metrics and nothing else.
func (w *world) metricsToken() string {
	w.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: w.meta("scraper")}
	w.create(account)
	w.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "scraper-" + w.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "caplv-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: w.namespace, Name: "scraper"}},
	})
	request := &authenticationv1.TokenRequest{}
	w.g.Expect(suite.cp.Client().SubResource("token").Create(w.t.Context(), account, request)).To(Succeed())
	return request.Status.Token
}

// metrics reads the operator's metrics as Prometheus does: over TLS, with a token.
func (w *world) metrics(token string) map[string]*dto.MetricFamily {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "https://"+suite.operator.MetricsAddress()+"/metrics", nil)
	w.g.Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer "+token)
	// The certificate is self-signed by the manager; what is tested here is not the certificate.
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := c.Do(request)
	w.g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	w.g.Expect(response.StatusCode).To(Equal(http.StatusOK))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	w.g.Expect(err).NotTo(HaveOccurred())
	return families
}

// execs is how many SSH execs the operator has done on the test's host.
func (w *world) execs(token string) float64 {
	w.t.Helper()
	return w.sum(token, "caplv_ssh_execs_total", "host", fmt.Sprintf("%s/host", w.namespace))
}

// observedReconciles is how many reconciles of LibvirtMachines have ended.
func (w *world) observedReconciles(token string) float64 {
	w.t.Helper()
	return w.sum(token, "controller_runtime_reconcile_total", "controller", "libvirtmachine")
}

func (w *world) sum(token, family, label, value string) float64 {
	w.t.Helper()
	families := w.metrics(token)
	w.g.Expect(families).To(HaveKey(family))
	total := 0.0
	for _, m := range families[family].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == label && l.GetValue() == value {
				total += m.GetCounter().GetValue()
			}
		}
	}
	return total
}
