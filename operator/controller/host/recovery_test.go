// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/hostconn"
	"github.com/caplv/caplv/operator/hostctl"
	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/setup"
	"github.com/caplv/caplv/operator/virsh"
)

// ailingHost fails one of the things that a probe does.
type ailingHost struct {
	usableHost
	method  string
	ailment error
}

func (h *ailingHost) ail(method string) error {
	if h.method == method {
		return h.ailment
	}
	return nil
}

func (h *ailingHost) ProbeHelper(context.Context) (setup.Facts, error) {
	return h.facts, h.ail("ProbeHelper")
}
func (h *ailingHost) ProbeSession(context.Context, string) error { return h.ail("ProbeSession") }
func (h *ailingHost) Probe(ctx context.Context, virtType string) (virsh.Hypervisor, error) {
	if err := h.ail("Probe"); err != nil {
		return virsh.Hypervisor{}, err
	}
	return h.usableHost.Probe(ctx, virtType)
}

type ailingConnector struct{ host *ailingHost }

func (c ailingConnector) Connect(context.Context, *infrav1.LibvirtHost) (hosts.Host, error) {
	return c.host, c.host.ail("Connect")
}
func (ailingConnector) Forget(client.ObjectKey) {}

func link(reason hostconn.Reason) error {
	return &hostconn.Error{Reason: reason, Address: "b:22", Err: errors.New("words")}
}

func said(reason virsh.Reason) error {
	return &virsh.Error{Reason: reason, Command: "x", Message: "words"}
}

// ailment is a failure of a method, and the reason that it has.
type ailment struct {
	method string
	err    error
	want   string
}

// ailments are failures that end without anybody touching the LibvirtHost.
var ailments = []ailment{
	{"Connect", hosts.NewConfigError(infrav1.SecretNotFoundReason, "words"), infrav1.SecretNotFoundReason},
	{"Connect", hosts.NewConfigError(infrav1.InvalidURIReason, "words"), infrav1.InvalidURIReason},
	{"Connect", link(hostconn.InvalidKey), infrav1.InvalidPrivateKeyReason},
	{"Connect", link(hostconn.Unreachable), infrav1.UnreachableReason},
	{"Connect", link(hostconn.Timeout), infrav1.TimeoutReason},
	{"Connect", link(hostconn.Unauthorized), infrav1.UnauthorizedReason},
	{"Connect", link(hostconn.HostKeyMismatch), infrav1.HostKeyMismatchReason},
	{"Probe", link(hostconn.Closed), infrav1.UnreachableReason},
	{"Probe", said(virsh.VirshMissing), infrav1.VirshMissingReason},
	{"Probe", said(virsh.LibvirtUnavailable), infrav1.LibvirtUnavailableReason},
	{"Probe", said(virsh.VirtTypeUnsupported), infrav1.VirtTypeUnsupportedReason},
	{"Probe", said(virsh.Unknown), infrav1.ProbeFailedReason},
	{"ProbeHelper", &hostctl.Error{Code: hostctl.CodeHelperMissing, Message: "words"}, infrav1.HelperUnavailableReason},
	{"ProbeHelper", link(hostconn.Closed), infrav1.UnreachableReason},
	{"ProbeHelper", &hostctl.Error{Code: hostctl.CodeHelperOutdated, Message: "words"}, infrav1.HelperUnavailableReason},
	{"ProbeHelper", &hostctl.Error{Code: hostctl.CodeHelperNotPermitted, Message: "words"}, infrav1.HelperUnavailableReason},
}

func TestEveryFailureOfAProbeIsNamedAndMendsByItself(t *testing.T) {
	for _, row := range ailments {
		t.Run(row.method+" fails for "+row.want, func(t *testing.T) {
			b := newBench(t, nil)
			host := &ailingHost{method: row.method, ailment: row.err}
			b.r.Hosts = ailingConnector{host}
			lh, result := b.reconcile()
			b.Expect(conditions.GetReason(lh, infrav1.HostReadyCondition)).To(Equal(row.want))
			b.Expect(conditions.GetMessage(lh, infrav1.HostReadyCondition)).To(ContainSubstring("words"), "the cause is told")
			b.Expect(lh.Status.Ready).To(HaveValue(BeFalse()))
			b.Expect(result.RequeueAfter).To(BeNumerically(">", 0))

			host.ailment = nil
			b.now = b.now.Add(result.RequeueAfter + time.Second)
			lh, _ = b.reconcile()
			b.Expect(conditions.GetReason(lh, infrav1.HostReadyCondition)).To(Equal(infrav1.HostReadyReason))
			b.Expect(conditions.GetMessage(lh, infrav1.HostReadyCondition)).NotTo(ContainSubstring("words"))
		})
	}
}

// testedElsewhere says where the recovery from a reason is tested that ailments do not have, or why it has none.
var testedElsewhere = map[string]string{
	"HostReadyReason":                "no failure",
	"HostKeyFromSpecReason":          "no failure",
	"HostKeyRecordedReason":          "no failure",
	"HostDeletingReason":             "ends with the machines; it is tested with them",
	"HostKeyNotPinnedReason":         "the way out is a change of the object",
	"DuplicateHostReason":            "tested with the comparison of hosts",
	"SessionModeMisconfiguredReason": "tested with session mode",
	"BootstrappedReason":             "no failure",
	"BootstrapQueuedReason":          "ends with the queue; it is tested with those who do not take a run",
	"BootstrapRunningReason":         "ends with the run; it is tested with bare hosts",
	"BootstrapCheckedReason":         "no failure",
	"BootstrapFailedReason":          "tested with the ends of runs",
	"BootstrapUnreachableReason":     "tested with the ends of runs",
	"BootstrapTimedOutReason":        "tested with the ends of runs",
	"BootstrapLostReason":            "tested with the ends of runs",
	"BootstrapCanceledReason":        "tested with the ends of runs",
	"RunnerUnavailableReason":        "tested with those who do not take a run",
	"RunRejectedReason":              "tested with those who do not take a run",
	"WaitingForBootstrapReason":      "tested with bare hosts",
	"OffboardingReason":              "tested with deletion",
	"SessionHardenedReason":          "no failure",
	"SessionNotHardenedReason":       "tested with session mode, beside drift",
	"DriftedReason":                  "tested with drift",
	"InSyncReason":                   "no failure",
	"DriftUnknownReason":             "tested with drift",
}

func TestEveryReasonOfAHostHasATestOfItsRecovery(t *testing.T) {
	g := NewWithT(t)
	source, err := os.ReadFile("../../../api/v1alpha1/libvirthost_conditions.go")
	g.Expect(err).NotTo(HaveOccurred())
	declared := regexp.MustCompile(`(?m)^\t(\w+Reason) += "(\w+)"$`).FindAllStringSubmatch(string(source), -1)
	g.Expect(declared).NotTo(BeEmpty())
	var missing []string
	for _, d := range declared {
		tested := slices.ContainsFunc(ailments, func(a ailment) bool { return a.want == d[2] })
		if _, elsewhere := testedElsewhere[d[1]]; !tested && !elsewhere {
			missing = append(missing, d[1])
		}
	}
	g.Expect(missing).To(BeEmpty(), "no test mends what these stand for; add them to a table")
}
