// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/ansible"
)

func open(t *testing.T, maxRuns int, maxBytes int64) *Store {
	t.Helper()
	s, err := Open(t.TempDir(), maxRuns, maxBytes)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return s
}

func save(t *testing.T, s *Store, key string, finished int) ansible.Status {
	t.Helper()
	status := ansible.Status{Ref: ansible.Ref{Key: key}, Phase: ansible.Succeeded, Finished: time.Unix(int64(finished), 0).UTC()}
	NewWithT(t).Expect(s.Save(Saved{Digest: "d", Status: status})).To(Succeed())
	return status
}

func sequences(t *testing.T, e *Events, after int64) []int64 {
	t.Helper()
	var found []int64
	NewWithT(t).Expect(e.Follow(nil, after, func(event ansible.Event) { found = append(found, event.Sequence) })).To(Succeed())
	return found
}

func TestLoadReturnsWhatWasSavedAndRemovesWhatWasNot(t *testing.T) {
	g := NewWithT(t)
	s := open(t, 10, 1<<20)
	status := save(t, s, "a", 1)
	g.Expect(os.MkdirAll(filepath.Join(s.path, "torn"), 0o700)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(s.path, "torn", statusFile), []byte(`{"digest":`), 0o600)).To(Succeed())
	g.Expect(s.Load()).To(Equal(map[string]Saved{"a": {Digest: "d", Status: status}}))
	g.Expect(filepath.Join(s.path, "torn")).NotTo(BeADirectory())
}

func TestRotateKeepsTheLatest(t *testing.T) {
	for _, tt := range []struct {
		name     string
		maxRuns  int
		maxBytes int64
		removed  []string
	}{
		{"all that fit", 3, 1 << 20, nil},
		{"by count", 2, 1 << 20, []string{"a"}},
		{"by bytes", 3, 1000, []string{"b"}},
		{"and the very latest however large it is", 3, 1, []string{"b", "a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			s := open(t, tt.maxRuns, tt.maxBytes)
			ended := []ansible.Status{save(t, s, "a", 1), save(t, s, "b", 2), save(t, s, "c", 3)}
			g.Expect(os.WriteFile(filepath.Join(s.path, "b", outputFile), make([]byte, 900), 0o600)).To(Succeed())
			removed, err := s.Rotate(ended)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(removed).To(Equal(tt.removed))
			g.Expect(os.ReadDir(s.path)).To(HaveLen(3 - len(tt.removed)))
		})
	}
}

func TestRunsOfOneBatchShareTheirOutput(t *testing.T) {
	g := NewWithT(t)
	s := open(t, 10, 1<<20)
	for _, key := range []string{"a", "b"} {
		save(t, s, key, 1)
	}
	for _, text := range []string{"first", "second"} {
		file, err := s.Output([]string{"a", "b"})
		g.Expect(err).NotTo(HaveOccurred())
		_, err = file.WriteString(text)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(file.Close()).To(Succeed())
		for _, key := range []string{"a", "b"} {
			g.Expect(os.ReadFile(filepath.Join(s.path, key, outputFile))).To(Equal([]byte(text)))
		}
	}
}

func TestEventsGoOnWhereAnEarlierLifeHasEnded(t *testing.T) {
	g := NewWithT(t)
	s := open(t, 10, 1<<20)
	save(t, s, "a", 1)
	first, err := s.Events("a")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(first.Add(ansible.Event{Type: ansible.PlayStarted})).To(Succeed())
	g.Expect(first.Add(ansible.Event{Type: ansible.TaskStarted})).To(Succeed())
	_, err = first.file.WriteString(`{"sequence":3,"ty`)
	g.Expect(err).NotTo(HaveOccurred())

	second, err := s.Events("a")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(second.Add(ansible.Event{Type: ansible.RunEnded})).To(Succeed())
	g.Expect(second.Add(ansible.Event{Type: ansible.TaskStarted})).To(Succeed())
	g.Expect(sequences(t, second, 0)).To(Equal([]int64{1, 2, 3}))
	g.Expect(sequences(t, s.EndedEvents("a"), 2)).To(Equal([]int64{3}))
}

func TestTooManyEventsStillEnd(t *testing.T) {
	g := NewWithT(t)
	s := open(t, 10, 1<<20)
	save(t, s, "a", 1)
	e, err := s.Events("a")
	g.Expect(err).NotTo(HaveOccurred())
	large := ansible.Event{Type: ansible.Progressed, Message: strings.Repeat("x", 1<<20)}
	for range 20 {
		g.Expect(e.Add(large)).To(Succeed())
	}
	g.Expect(e.Add(ansible.Event{Type: ansible.RunEnded})).To(Succeed())
	g.Expect(sequences(t, e, 15)).To(Equal([]int64{16, 17}))
}

func TestFollowWaitsForEvents(t *testing.T) {
	g := NewWithT(t)
	s := open(t, 10, 1<<20)
	save(t, s, "a", 1)
	e, err := s.Events("a")
	g.Expect(err).NotTo(HaveOccurred())
	told := make(chan int64)
	followed := make(chan error)
	go func() {
		followed <- e.Follow(t.Context().Done(), 0, func(event ansible.Event) { told <- event.Sequence })
	}()
	for i := range 3 {
		g.Expect(e.Add(ansible.Event{Type: ansible.TaskStarted})).To(Succeed())
		g.Expect(<-told).To(Equal(int64(i + 1)))
	}
	g.Expect(e.Add(ansible.Event{Type: ansible.RunEnded})).To(Succeed())
	g.Expect(<-told).To(Equal(int64(4)))
	g.Expect(<-followed).To(Succeed())
}
