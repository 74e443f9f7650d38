// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"io"
	"strings"
)

const (
	// tailSize is how much of the end of the output is kept for a message.
	tailSize = 700
	cutHere  = "\n[The output is longer; the rest was dropped.]\n"
)

// tailWriter keeps the end of what is written to it.
type tailWriter struct{ kept []byte }

func (t *tailWriter) Write(data []byte) (int, error) {
	t.kept = append(t.kept, data...)
	if len(t.kept) > tailSize {
		t.kept = append([]byte(nil), t.kept[len(t.kept)-tailSize:]...)
	}
	return len(data), nil
}

func (t *tailWriter) String() string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(t.kept), ""))
	if text == "" {
		return "it printed nothing"
	}
	return text
}

// limitWriter passes on the beginning of what is written to it, and all of it to tail. It never fails: output is not worth a run.
type limitWriter struct {
	next io.Writer
	left int64
	tail io.Writer
}

func (l *limitWriter) Write(data []byte) (int, error) {
	_, _ = l.tail.Write(data)
	if l.left > 0 {
		part := data[:min(int64(len(data)), l.left)]
		_, _ = l.next.Write(part)
		if l.left -= int64(len(part)); l.left == 0 {
			_, _ = io.WriteString(l.next, cutHere)
		}
	}
	return len(data), nil
}
