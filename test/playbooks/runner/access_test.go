// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bufio"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sys/unix"

	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/test/playbooks/fleet"
)

func TestOnlyAccountsThatAreAllowedUseTheSocket(t *testing.T) {
	const allowed, other = 12345, 12346
	t.Run("which belongs to the own account alone", func(t *testing.T) {
		info, err := os.Stat(start(t).socket())
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)))
	})
	s := start(t, "--allow-uid", "12345")
	// Others get as far as the socket.
	for _, dir := range []string{s.dir, filepath.Dir(s.socket())} {
		NewWithT(t).Expect(os.Chmod(dir, 0o711)).To(Succeed())
	}
	t.Run("the own one", func(t *testing.T) {
		NewWithT(t).Expect(getAs(t, s.socket(), os.Geteuid())).To(Equal(http.StatusOK))
	})
	t.Run("one that is named", func(t *testing.T) {
		NewWithT(t).Expect(getAs(t, s.socket(), allowed)).To(Equal(http.StatusOK))
	})
	t.Run("and no other", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(getAs(t, s.socket(), other)).To(Equal(http.StatusForbidden))
		g.Expect(s.log.String()).To(MatchRegexp(`Refused a connection.*12346`))
	})
}

// getAs asks whether the sidecar is healthy, over a connection of another account, and returns the status of HTTP.
func getAs(t *testing.T, socket string, uid int) int {
	t.Helper()
	g := NewWithT(t)
	type dialed struct {
		conn net.Conn
		err  error
	}
	result := make(chan dialed)
	go func() {
		// The account is that of one thread, which ends with this function since it is not unlocked.
		runtime.LockOSThread()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
			result <- dialed{err: errno}
			return
		}
		conn, err := net.Dial("unix", socket)
		result <- dialed{conn, err}
	}()
	got := <-result
	g.Expect(got.err).NotTo(HaveOccurred())
	defer func() { _ = got.conn.Close() }()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://sidecar/healthz", nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(request.Write(got.conn)).To(Succeed())
	response, err := http.ReadResponse(bufio.NewReader(got.conn), request)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(response.Body.Close()).To(Succeed())
	return response.StatusCode
}

func TestMetrics(t *testing.T) {
	g := NewWithT(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	address := listener.Addr().String()
	g.Expect(listener.Close()).To(Succeed())
	s := start(t, "--metrics-addr", address)
	host := server(t, fleet.Options{Name: "one.ns"})
	s.submit(request("good", ansible.OnboardHost, nil, host.Host))
	s.ended("good")
	unreachable := host.Host
	unreachable.Name, unreachable.Port = "two.ns", 1
	s.submit(request("bad", ansible.OnboardHost, nil, unreachable))
	s.ended("bad")

	families := scrape(t, "http://"+address+"/metrics")
	onboard := map[string]string{"playbook": string(ansible.OnboardHost), "check": "false"}
	g.Expect(value(families["caplv_ansible_runs_total"], with(onboard, "phase", string(ansible.Succeeded)))).To(BeEquivalentTo(1))
	g.Expect(value(families["caplv_ansible_runs_total"], with(onboard, "phase", string(ansible.Unreachable)))).To(BeEquivalentTo(1))
	g.Expect(value(families["caplv_ansible_host_failures_total"], map[string]string{"reason": string(ansible.Unreachable)})).To(BeEquivalentTo(1))
	g.Expect(value(families["caplv_ansible_run_duration_seconds"], map[string]string{"phase": string(ansible.Succeeded)})).To(BeEquivalentTo(1))
	g.Expect(value(families["caplv_ansible_run_waiting_seconds"], nil)).To(BeEquivalentTo(2))
	g.Expect(value(families["caplv_ansible_queue_length"], nil)).To(BeEquivalentTo(0))
	g.Expect(value(families["caplv_ansible_processes"], nil)).To(BeEquivalentTo(0))
	g.Expect(getAs(t, s.socket(), os.Geteuid())).To(Equal(http.StatusOK))
}

// scrape reads metrics as Prometheus does.
func scrape(t *testing.T, url string) map[string]*dto.MetricFamily {
	t.Helper()
	g := NewWithT(t)
	response, err := http.Get(url) //nolint:noctx // It is over before the test is.
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	g.Expect(response.StatusCode).To(Equal(http.StatusOK))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	return families
}

// with is labels and one more.
func with(labels map[string]string, name, value string) map[string]string {
	all := map[string]string{name: value}
	maps.Copy(all, labels)
	return all
}

// value is that of the one metric with these labels, or how often it was observed; -1 if there is none.
func value(family *dto.MetricFamily, labels map[string]string) float64 {
	for _, metric := range family.GetMetric() {
		matching := 0
		for _, label := range metric.GetLabel() {
			if want, ok := labels[label.GetName()]; ok && want == label.GetValue() {
				matching++
			}
		}
		switch {
		case matching < len(labels):
		case metric.GetHistogram() != nil:
			return float64(metric.GetHistogram().GetSampleCount())
		default:
			return metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	return -1
}
