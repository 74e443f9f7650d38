// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func rounds(totals ...time.Duration) []round {
	var out []round
	for _, d := range totals {
		out = append(out, round{
			total: d, reading: time.Millisecond, writing: 2 * time.Millisecond,
			steps:  map[string]time.Duration{"Connect": time.Millisecond, "StartDomain": d / 2, "DefineDomain": time.Millisecond},
			counts: map[string]int{"Connect": 1, "StartDomain": 1, "DefineDomain": 1},
		})
	}
	return out
}

func TestTheMedianIgnoresOneSlowRound(t *testing.T) {
	g := NewWithT(t)
	g.Expect(median(rounds(100, 9000, 120), total)).To(BeEquivalentTo(120))
	g.Expect(median(rounds(100, 120, 140, 9000), total)).To(BeEquivalentTo(130))
	g.Expect(median(nil, total)).To(BeZero())
}

func TestTheTableShowsRatiosAndWhereTimeGoes(t *testing.T) {
	g := NewWithT(t)
	c := &comparison{
		operator: rounds(120*time.Millisecond, 130*time.Millisecond, 500*time.Millisecond),
		each:     rounds(100 * time.Millisecond), once: rounds(80 * time.Millisecond),
	}
	var out strings.Builder
	c.print(&out)
	text := strings.Join(strings.Fields(out.String()), " ")
	g.Expect(text).To(ContainSubstring("one SSH connection: 1.30 (target: at most 1.3)"))
	g.Expect(text).To(ContainSubstring("in one virsh: 1.62"))
	g.Expect(text).To(ContainSubstring("StartDomain 65.0 1 50.0"))
	g.Expect(strings.Index(text, "DefineDomain")).To(BeNumerically("<", strings.Index(text, "StartDomain")), "in the order in which it is done")
	// 130 ms without the 65 ms of the start, 1 ms of the definition, 1 ms of reads and 2 ms of writes.
	g.Expect(text).To(ContainSubstring("SSH, files 61.0"))
}

func TestTheCostIsPerReconcile(t *testing.T) {
	g := NewWithT(t)
	c := &cost{
		warm: usage{reconciles: 10, cpu: 60 * time.Millisecond, time: 100 * time.Millisecond, sent: 1000, received: 9000},
		cold: usage{reconciles: 2, time: 100 * time.Millisecond, sent: 4000, received: 20000, execs: 2},
		idle: 10 * time.Millisecond,
	}
	var out strings.Builder
	c.print(&out)
	text := strings.Join(strings.Fields(out.String()), " ")
	g.Expect(text).To(And(ContainSubstring("time in ms 10.0 50.0"), ContainSubstring("bytes sent over SSH 100 2000"),
		ContainSubstring("SSH execs 0.0 1.0"), ContainSubstring("5.0 ms per reconcile, beyond 10.0 ms")))
}

func TestNotesAreTheTimesBetweenSteps(t *testing.T) {
	g := NewWithT(t)
	steps, err := readNotes("began 1700000000.000000\nDefineDomain 1700000000.050000\nStartDomain 1700000001.050000\n")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(steps).To(HaveLen(2))
	g.Expect(steps["DefineDomain"]).To(BeNumerically("~", 50*time.Millisecond, time.Millisecond))
	g.Expect(steps["StartDomain"]).To(BeNumerically("~", time.Second, time.Millisecond))
	_, err = readNotes("error: no domain\n")
	g.Expect(err).To(MatchError(ContainSubstring("is not a step and a time")))
}

func TestTheSameStepsAreDoneByHand(t *testing.T) {
	g := NewWithT(t)
	r := recipe{ephemeral: true, pool: handName, domainXML: "<domain/>", volumeXML: "<volume/>", poolXML: "<pool/>", stage: "caplv-hostctl/1"}
	each, once := r.create(false), r.create(true)
	for _, command := range []string{"define domain.xml", "pool-define pool.xml", "pool-start byhand", "vol-create byhand volume.xml", "start byhand"} {
		g.Expect(each).To(ContainSubstring(virshCall + command + " "))
		g.Expect(once).To(ContainSubstring("\n" + command + "\n"))
	}
	g.Expect(strings.Count(each, virshCall)).To(Equal(5))
	g.Expect(strings.Count(once, virshCall)).To(Equal(1))
	g.Expect(strings.Count(each, helper)).To(Equal(1))
	g.Expect(strings.Count(once, helper)).To(Equal(1))
}
