// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostsetup

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
)

func TestTextsOfARunAreBoundedAndHoldNoSecrets(t *testing.T) {
	g := NewWithT(t)
	long := strings.Repeat("ä", 1<<20)
	run := &infrav1.BootstrapRun{}
	tasks := make([]string, 50)
	for i := range tasks {
		tasks[i] = fmt.Sprint(i, long)
	}
	Note(run, ansible.Status{
		Phase: ansible.Running, Task: long, TasksDone: 3, TasksKnown: 4, Progress: long,
		Hosts: map[string]ansible.HostResult{"h": {OK: -1, Changed: 1 << 40, ChangedTasks: tasks, FailedTask: long, Message: "hunter22 " + long}},
	}, "h", "hunter22")
	g.Expect(len(run.Progress)).To(BeNumerically("<=", 512))
	g.Expect(run.Progress).To(HavePrefix("task 3 of 4: ä"))
	g.Expect(len(run.FailedTask)).To(BeNumerically("<=", 256))
	g.Expect(len(run.Message)).To(BeNumerically("<=", 2048))
	g.Expect(run.Message).To(HavePrefix("*** ä"))
	g.Expect(run.ChangedTasks).To(And(HaveLen(10), HaveEach(WithTransform(func(s string) int { return len(s) }, BeNumerically("<=", 256)))))
	g.Expect(run.OK).To(BeZero())
	g.Expect(run.Changed).To(BeNumerically(">", 0))

	for text, want := range map[string]string{
		"a -----BEGIN OPENSSH PRIVATE KEY-----\nxyz\n-----END OPENSSH PRIVATE KEY----- b": "a (private key) b",
		"a -----BEGIN RSA PRIVATE KEY-----\nxyz":                                          "a (private key)",
		"a\x1b[31mb\nc\td\xff":                                                            "a[31mb c d",
	} {
		g.Expect(Scrub(text)).To(Equal(want))
	}
	g.Expect(Scrub("banana", "an", "")).To(Equal("banana"), "short secrets would tear holes")
}

func TestWhatARunHasBroughtAbout(t *testing.T) {
	submitted := metav1.NewTime(now.Add(-time.Minute))
	for _, row := range []struct {
		name              string
		playbook          ansible.Playbook
		mode              infrav1.BootstrapMode
		result            ansible.HostResult
		applied, checked  bool
		touched, firstRun bool
	}{
		{"a run that succeeded", ansible.OnboardHost, infrav1.BootstrapApply, ansible.HostResult{Phase: ansible.Succeeded}, true, true, true, true},
		{"a check that succeeded", ansible.OnboardHost, infrav1.BootstrapCheck, ansible.HostResult{Phase: ansible.Succeeded}, false, true, true, false},
		{"a run that failed", ansible.OnboardHost, infrav1.BootstrapApply, ansible.HostResult{Phase: ansible.Failed}, false, false, true, true},
		{"a run that is lost", ansible.OnboardHost, infrav1.BootstrapApply, ansible.HostResult{Phase: ansible.Lost}, false, false, true, true},
		{"a run that did not get there", ansible.OnboardHost, infrav1.BootstrapApply, ansible.HostResult{Phase: ansible.Unreachable}, false, false, false, true},
		{"a later run that did not get there", ansible.OnboardHost, infrav1.BootstrapApply, ansible.HostResult{Phase: ansible.Unreachable}, false, false, true, false},
		{"a run that lost its connection", ansible.OnboardHost, infrav1.BootstrapApply, ansible.HostResult{Phase: ansible.Unreachable, OK: 3}, false, false, true, true},
		{"off-boarding", ansible.OffboardHost, infrav1.BootstrapApply, ansible.HostResult{Phase: ansible.Succeeded}, false, false, true, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			st := &infrav1.HostBootstrapStatus{
				Run:       &infrav1.BootstrapRun{Playbook: string(row.playbook), Mode: row.mode, DesiredStateHash: "want", SubmittedAt: submitted},
				TouchedAt: ago(time.Hour),
			}
			if row.firstRun {
				st.TouchedAt = submitted.DeepCopy()
			}
			End(st, ansible.Status{Phase: row.result.Phase, Hosts: map[string]ansible.HostResult{"h": row.result}}, "h", metav1.NewTime(now))
			g.Expect(st.Run.FinishedAt.Time).To(Equal(now))
			g.Expect(st.AppliedStateHash == "want" && st.AppliedAt != nil).To(Equal(row.applied))
			g.Expect(st.CheckedAt != nil).To(Equal(row.checked))
			g.Expect(st.TouchedAt != nil).To(Equal(row.touched))
		})
	}
}

func TestAProblemOfADriftCheckIsNoProblemOfTheHost(t *testing.T) {
	g := NewWithT(t)
	lh := wanted()
	g.Expect(Problem(lh, true, infrav1.UnreachableReason, "words")).To(Equal(infrav1.DriftedCondition))
	g.Expect(conditions.GetReason(lh, infrav1.DriftedCondition)).To(Equal(infrav1.DriftUnknownReason))
	g.Expect(conditions.Get(lh, infrav1.BootstrappedCondition)).To(BeNil())
	lh.Spec.Bootstrap.Mode = infrav1.BootstrapCheck
	g.Expect(Problem(lh, true, infrav1.UnreachableReason, "words")).To(Equal(infrav1.BootstrappedCondition))
	g.Expect(conditions.GetReason(lh, infrav1.BootstrappedCondition)).To(Equal(infrav1.UnreachableReason))
}
