// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"sync/atomic"
	"time"
)

// stallWatch gives a connection up that sends too little. Only the time spent waiting for it counts, since whoever reads may be the slower one.
type stallWatch struct {
	window  time.Duration
	least   int64
	giveUp  func()
	timer   *time.Timer
	stalled atomic.Bool

	began  time.Time
	waited time.Duration
	bytes  int64
}

func newStallWatch(o Options, giveUp func()) *stallWatch {
	w := &stallWatch{window: o.StallWindow, least: o.StallBytes}
	w.giveUp = func() {
		w.stalled.Store(true)
		giveUp()
	}
	w.timer = time.AfterFunc(w.window, w.giveUp)
	w.timer.Stop()
	return w
}

// begin is called before a read. A read may last until the window ends.
func (w *stallWatch) begin() {
	w.began = time.Now()
	w.timer.Reset(w.window - w.waited)
}

// end is called after a read of n bytes.
func (w *stallWatch) end(n int) {
	w.timer.Stop()
	w.waited += time.Since(w.began)
	w.bytes += int64(n)
	switch {
	case w.bytes >= w.least:
		w.waited, w.bytes = 0, 0
	case w.waited >= w.window:
		w.giveUp()
	}
}

func (w *stallWatch) stop() { w.timer.Stop() }
