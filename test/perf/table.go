// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"
)

const target = 1.3

// comparison is the rounds for one kind of pool: by the operator, by hand with a virsh for each command, and by hand with one
// virsh for all of them.
type comparison struct {
	ephemeral            bool
	operator, each, once []round
	// dial is how long it takes to connect, which is in none of the times.
	dial time.Duration
}

func (c *comparison) pool() string {
	if c.ephemeral {
		return "tmpfs"
	}
	return "persistent copy-on-write"
}

// print writes the comparison.
func (c *comparison) print(w io.Writer) {
	fmt.Fprintf(w, "\nFrom the object to the running machine, root disk: %s. Medians of %d rounds, in ms.\n\n", c.pool(), len(c.operator))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "step\toperator\ttimes\tby hand\t")
	steps := stepNames(c.operator, c.each)
	slices.SortStableFunc(steps, func(a, b string) int { return order(a) - order(b) })
	for _, step := range steps {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t\n", step, stepMedian(c.operator, step), countMedian(c.operator, step), stepMedian(c.each, step))
	}
	fmt.Fprintf(t, "API server: reads\t%s\t\t\t\n", milliseconds(median(c.operator, func(r round) time.Duration { return r.reading })))
	fmt.Fprintf(t, "API server: writes\t%s\t\t\t\n", milliseconds(median(c.operator, func(r round) time.Duration { return r.writing })))
	fmt.Fprintf(t, "the rest: own work, queue, watches; SSH, files\t%s\t\t%s\t\n",
		milliseconds(median(c.operator, round.rest)), milliseconds(median(c.each, round.rest)))
	op, each, once := median(c.operator, total), median(c.each, total), median(c.once, total)
	fmt.Fprintf(t, "TOTAL\t%s\t\t%s\t\n", milliseconds(op), milliseconds(each))
	fmt.Fprintf(t, "TOTAL by hand in one virsh\t\t\t%s\t\n", milliseconds(once))
	_ = t.Flush()
	fmt.Fprintf(w, "\n  ratio to the same commands by hand over one SSH connection: %.2f (target: at most %.1f)\n", ratio(op, each), target)
	fmt.Fprintf(w, "  ratio to the same commands by hand in one virsh:             %.2f\n", ratio(op, once))
	fmt.Fprintf(w, "  fastest rounds: operator %s, by hand %s, in one virsh %s\n",
		milliseconds(fastest(c.operator)), milliseconds(fastest(c.each)), milliseconds(fastest(c.once)))
	fmt.Fprintf(w, "  operator: %.0f requests to the API server, %.0f SSH execs\n",
		medianOf(c.operator, func(r round) float64 { return r.requests }), medianOf(c.operator, func(r round) float64 { return r.execs }))
	fmt.Fprintf(w, "  connecting by hand, in none of the times: %s\n", milliseconds(c.dial))
}

// order sorts steps as they are done.
func order(step string) int {
	known := []string{"Connect", "Observe", "RefreshPool", "DefineDomain", "StageDirectory", "DefinePool", "StartPool", "CreateVolume", "StartDomain"}
	if i := slices.Index(known, step); i >= 0 {
		return i
	}
	return len(known)
}

func total(r round) time.Duration { return r.total }

// rest is what is in no row. Connect reads a Secret, which is counted once.
func (r round) rest() time.Duration {
	left := r.total - r.reading - r.writing
	for step, d := range r.steps {
		if step != "Connect" {
			left -= d
		}
	}
	return max(0, left)
}

func medianOf[T ~int | ~int64 | ~float64](runs []round, of func(round) T) T {
	values := make([]T, 0, len(runs))
	for _, r := range runs {
		values = append(values, of(r))
	}
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 1 {
		return values[middle]
	}
	return (values[middle-1] + values[middle]) / 2
}

func median(runs []round, of func(round) time.Duration) time.Duration { return medianOf(runs, of) }

func fastest(runs []round) time.Duration {
	return slices.MinFunc(runs, func(a, b round) int { return int(a.total - b.total) }).total
}

func stepMedian(runs []round, step string) string {
	if !slices.ContainsFunc(runs, func(r round) bool { _, ok := r.steps[step]; return ok }) {
		return ""
	}
	return milliseconds(median(runs, func(r round) time.Duration { return r.steps[step] }))
}

func countMedian(runs []round, step string) string {
	n := medianOf(runs, func(r round) int { return r.counts[step] })
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func ratio(a, b time.Duration) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond))
}

// print writes the cost.
func (c *cost) print(w io.Writer) {
	fmt.Fprintf(w, "\nReconcile of a running machine, means of %.0f with the virsh of the one before and %.0f that start one.\n\n",
		c.warm.reconciles, c.cold.reconciles)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "per reconcile\tvirsh kept\tvirsh started\t")
	row := func(name, format string, of func(usage) float64) {
		fmt.Fprintf(t, "%s\t"+format+"\t"+format+"\t\n", name, of(c.warm)/c.warm.reconciles, of(c.cold)/c.cold.reconciles)
	}
	row("time in ms", "%.1f", func(u usage) float64 { return float64(u.time) / float64(time.Millisecond) })
	row("bytes sent over SSH", "%.0f", func(u usage) float64 { return u.sent })
	row("bytes received over SSH", "%.0f", func(u usage) float64 { return u.received })
	row("SSH execs", "%.1f", func(u usage) float64 { return u.execs })
	row("requests to the API server", "%.1f", func(u usage) float64 { return u.requests })
	_ = t.Flush()
	fmt.Fprintf(w, "\n  CPU time of the manager with a kept virsh: %.1f ms per reconcile, beyond %s ms for the whole time without any\n",
		float64(c.warm.cpu-c.idle)/float64(time.Millisecond)/c.warm.reconciles, milliseconds(c.idle))
}
