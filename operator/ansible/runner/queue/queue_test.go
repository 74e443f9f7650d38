// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"pgregory.net/rapid"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func item(key, kind string, locks ...string) Item {
	return Item{Key: key, Kind: kind, Locks: locks, Hosts: len(locks), Since: start}
}

func keys(items []Item) []string {
	var found []string
	for _, i := range items {
		found = append(found, i.Key)
	}
	return found
}

func TestTake(t *testing.T) {
	for _, tt := range []struct {
		name    string
		held    []Item
		waiting []Item
		now     time.Duration
		batch   []string
		wait    time.Duration
	}{
		{"nothing of an empty queue", nil, nil, 0, nil, 0},
		{"the first one, and those of its kind", nil, []Item{item("a", "x", "1"), item("b", "y", "2"), item("c", "x", "3")}, time.Second, []string{"a", "c"}, 0},
		{"no more hosts than a batch may have", nil, []Item{item("a", "x", "1", "2"), item("b", "x", "3", "4"), item("c", "x", "5")}, time.Second, []string{"a", "c"}, 0},
		{"a full batch at once", nil, []Item{item("a", "x", "1", "2"), item("b", "x", "3")}, 0, []string{"a", "b"}, 0},
		{"nothing before the window is over", nil, []Item{item("a", "x", "1")}, 400 * time.Millisecond, nil, 600 * time.Millisecond},
		{"one that goes alone, alone and at once", nil, []Item{item("a", "", "1"), item("b", "", "2")}, 0, []string{"a"}, 0},
		{"one for another host while the first waits for its own", []Item{item("h", "x", "1")}, []Item{item("a", "x", "1"), item("b", "y", "2")}, time.Second, []string{"b"}, 0},
		{"nothing that would pass one for the same host", []Item{item("h", "x", "1")}, []Item{item("a", "x", "1", "2"), item("b", "y", "2")}, time.Second, nil, 0},
		{"one run a host", nil, []Item{item("a", "x", "1"), item("b", "x", "1"), item("c", "x", "2")}, time.Second, []string{"a", "c"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := NewWithT(t)
			q := &Queue{Limit: 10, MaxHosts: 3, Window: time.Second}
			q.hold(tt.held)
			for _, i := range tt.waiting {
				g.Expect(q.Add(i)).To(Succeed())
			}
			batch, wait := q.Take(start.Add(tt.now))
			g.Expect(keys(batch)).To(Equal(tt.batch))
			g.Expect(wait).To(Equal(tt.wait))
			g.Expect(q.Len()).To(Equal(len(tt.waiting) - len(tt.batch)))
		})
	}
}

func TestAFullQueueTakesOnlyWhatComesBack(t *testing.T) {
	g := NewWithT(t)
	q := &Queue{Limit: 1, MaxHosts: 3}
	g.Expect(q.Add(item("a", "x", "1"))).To(Succeed())
	g.Expect(q.Add(item("b", "x", "2"))).To(MatchError(ErrFull))
	q.Return(item("c", "", "3"))
	batch, _ := q.Take(start)
	g.Expect(keys(batch)).To(Equal([]string{"c"}))
	g.Expect(q.Remove("a")).To(BeTrue())
	g.Expect(q.Remove("a")).To(BeFalse())
}

// However items come and batches end, each is carried out once, and no host has two at the same time.
func TestEveryItemHasItsTurn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := &Queue{Limit: 1000, MaxHosts: rapid.IntRange(1, 4).Draw(t, "max"), Window: time.Second}
		count := rapid.IntRange(1, 30).Draw(t, "count")
		for i := range count {
			lock := fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "host"))
			kind := rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "kind")
			if err := q.Add(item(fmt.Sprint(i), kind, lock)); err != nil {
				t.Fatal(err)
			}
		}
		done := map[string]bool{}
		busy := map[string]bool{}
		var running [][]Item
		for len(done) < count {
			batch, _ := q.Take(start.Add(time.Minute))
			if batch == nil {
				if len(running) == 0 {
					t.Fatalf("%d of %d are done, nothing runs, and nothing can be taken", len(done), count)
				}
				n := rapid.IntRange(0, len(running)-1).Draw(t, "ends")
				q.Release(running[n])
				for _, i := range running[n] {
					delete(busy, i.Locks[0])
				}
				running = append(running[:n], running[n+1:]...)
				continue
			}
			for _, i := range batch {
				if done[i.Key] || busy[i.Locks[0]] {
					t.Fatalf("%s is taken twice, or its host is busy", i.Key)
				}
				done[i.Key], busy[i.Locks[0]] = true, true
			}
			running = append(running, batch)
		}
	})
}
