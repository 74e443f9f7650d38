// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Scraper reads the operator's metrics as Prometheus does: over TLS, with the token of a service account that may do
// nothing else.
type Scraper struct {
	operator *Operator
	client   *http.Client
	token    string
}

// Scraper creates the service account caplv-bench-scraper, unless it is there.
func (o *Operator) Scraper(ctx context.Context) (*Scraper, error) {
	const name = "caplv-bench-scraper"
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name}}
	if err := client.IgnoreAlreadyExists(o.cp.Client().Create(ctx, account)); err != nil {
		return nil, err
	}
	if err := client.IgnoreAlreadyExists(o.cp.Client().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "caplv-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: Namespace, Name: name}},
	})); err != nil {
		return nil, err
	}
	request := &authenticationv1.TokenRequest{}
	if err := o.cp.Client().SubResource("token").Create(ctx, account, request); err != nil {
		return nil, fmt.Errorf("requesting a token for service account %s/%s: %w", Namespace, name, err)
	}
	// The certificate is self-signed by the manager.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // It is on this machine.
	return &Scraper{operator: o, client: &http.Client{Transport: transport}, token: request.Status.Token}, nil
}

// Metrics are metric families by name.
type Metrics map[string]*dto.MetricFamily

// Scrape reads the metrics as they are now.
func (s *Scraper) Scrape(ctx context.Context) (Metrics, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.operator.MetricsAddress()+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("reading the operator's metrics: %s", response.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(response.Body)
}

// Sum adds up the values of a family's metrics that have these labels, given as name and value in turn. It takes counters,
// gauges and the sums of histograms.
func (m Metrics) Sum(family string, labels ...string) float64 {
	total := 0.0
	for _, metric := range m.matching(family, labels) {
		total += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + metric.GetHistogram().GetSampleSum()
	}
	return total
}

// Count adds up how many observations the family's histograms with these labels have made.
func (m Metrics) Count(family string, labels ...string) float64 {
	total := 0.0
	for _, metric := range m.matching(family, labels) {
		total += float64(metric.GetHistogram().GetSampleCount())
	}
	return total
}

// Values lists the values that a label has in a family.
func (m Metrics) Values(family, label string) []string {
	var values []string
	for _, metric := range m[family].GetMetric() {
		for _, l := range metric.GetLabel() {
			if l.GetName() == label {
				values = append(values, l.GetValue())
			}
		}
	}
	return values
}

func (m Metrics) matching(family string, labels []string) []*dto.Metric {
	var found []*dto.Metric
	for _, metric := range m[family].GetMetric() {
		has := map[string]string{}
		for _, l := range metric.GetLabel() {
			has[l.GetName()] = l.GetValue()
		}
		matches := true
		for i := 0; i+1 < len(labels); i += 2 {
			matches = matches && has[labels[i]] == labels[i+1]
		}
		if matches {
			found = append(found, metric)
		}
	}
	return found
}
