// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package queue decides which runs are carried out next, and which together. It neither waits nor knows what a run is.
package queue

import (
	"errors"
	"slices"
	"time"
)

// ErrFull is returned for an item that the queue has no room for.
var ErrFull = errors.New("the queue is full")

// Item is a run that waits.
type Item struct {
	Key string
	// Locks name what no two batches may work on at the same time: hosts.
	Locks []string
	// Kind is equal for items that may be carried out together. An item of the empty kind goes alone.
	Kind string
	// Hosts is how many hosts the item has.
	Hosts int
	// Since is when it began to wait.
	Since time.Time
}

// Queue is first in, first out, except that an item whose host is busy is passed by items for other hosts, and that items of one
// kind are taken together. No item is passed by one for the same host, so none waits for ever. It is not safe for concurrent use.
type Queue struct {
	// Limit is how many items may wait.
	Limit int
	// MaxHosts is how many hosts a batch may have.
	MaxHosts int
	// Window is how long an item waits for others to go with, even when it could begin.
	Window time.Duration

	waiting []Item
	held    map[string]bool
}

// Add puts an item at the end.
func (q *Queue) Add(item Item) error {
	if len(q.waiting) >= q.Limit {
		return ErrFull
	}
	q.waiting = append(q.waiting, item)
	return nil
}

// Return puts an item in front, whether or not there is room.
func (q *Queue) Return(item Item) { q.waiting = slices.Insert(q.waiting, 0, item) }

// Remove takes an item out, and says whether it was there.
func (q *Queue) Remove(key string) bool {
	before := len(q.waiting)
	q.waiting = slices.DeleteFunc(q.waiting, func(item Item) bool { return item.Key == key })
	return len(q.waiting) < before
}

// Len is how many items wait.
func (q *Queue) Len() int { return len(q.waiting) }

// Busy says whether an item waits for a host that is being worked on.
func (q *Queue) Busy(item Item) bool { return conflicts(item, q.held) }

// Take takes the next batch out, and holds its locks until Release. Without one it returns nil, and how long to wait until an item's
// window is over; zero when only Add or Release can help.
func (q *Queue) Take(now time.Time) (batch []Item, wait time.Duration) {
	claimed := map[string]bool{}
	claim(claimed, q.held)
	for i, lead := range q.waiting {
		if conflicts(lead, claimed) {
			claimItem(claimed, lead)
			continue
		}
		batch, hosts := q.collect(i, claimed)
		left := lead.Since.Add(q.Window).Sub(now)
		if left > 0 && lead.Kind != "" && hosts < q.MaxHosts {
			claimItem(claimed, lead)
			if wait == 0 || left < wait {
				wait = left
			}
			continue
		}
		q.hold(batch)
		return batch, 0
	}
	return nil, wait
}

// Release gives the locks of a batch back.
func (q *Queue) Release(batch []Item) {
	for _, item := range batch {
		for _, lock := range item.Locks {
			delete(q.held, lock)
		}
	}
}

// collect returns the item at an index with those behind it that may go with it. An item that stays keeps its hosts for itself.
func (q *Queue) collect(index int, taken map[string]bool) (batch []Item, hosts int) {
	lead := q.waiting[index]
	claimed := map[string]bool{}
	claim(claimed, taken)
	claimItem(claimed, lead)
	batch, hosts = []Item{lead}, lead.Hosts
	if lead.Kind == "" {
		return batch, hosts
	}
	for _, item := range q.waiting[index+1:] {
		if item.Kind == lead.Kind && hosts+item.Hosts <= q.MaxHosts && !conflicts(item, claimed) {
			batch = append(batch, item)
			hosts += item.Hosts
		}
		claimItem(claimed, item)
	}
	return batch, hosts
}

func (q *Queue) hold(batch []Item) {
	if q.held == nil {
		q.held = map[string]bool{}
	}
	for _, item := range batch {
		q.Remove(item.Key)
		claimItem(q.held, item)
	}
}

func conflicts(item Item, locks map[string]bool) bool {
	return slices.ContainsFunc(item.Locks, func(lock string) bool { return locks[lock] })
}

func claim(locks, more map[string]bool) {
	for lock := range more {
		locks[lock] = true
	}
}

func claimItem(locks map[string]bool, item Item) {
	for _, lock := range item.Locks {
		locks[lock] = true
	}
}
