// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package virsh

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
)

// reply is what a fake virsh writes for a command. end is what it does behind that: nothing, "exit", or "hang".
type reply struct{ stdout, stderr, end string }

// fakeHost starts fake virshs. Its fields before mu are set before the first start.
type fakeHost struct {
	// login is what the account's login writes first.
	login reply
	// quiet says that this virsh neither prompts nor echoes; plain, that it prompts and does not echo.
	quiet, plain bool
	// bytewise says that the output comes byte by byte.
	bytewise bool
	// exit is the status in which a process ends by itself.
	exit int
	// answer is asked for each command, but for the markers.
	answer func(line string) reply

	mu     sync.Mutex
	lines  []string // What all processes were given, but for the markers.
	starts int
	ended  int
}

func (h *fakeHost) start(context.Context, string) (Process, error) {
	h.mu.Lock()
	h.starts++
	h.mu.Unlock()
	p := &fakeProcess{host: h, done: make(chan struct{})}
	p.inR, p.inW = io.Pipe()
	p.outR, p.outW = io.Pipe()
	p.errR, p.errW = io.Pipe()
	go p.run()
	return p, nil
}

func (h *fakeHost) given() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.lines...)
}

// count returns how many processes have been started and how many of them have been closed.
func (h *fakeHost) count() (starts, ended int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.starts, h.ended
}

type fakeProcess struct {
	host            *fakeHost
	inR, outR, errR *io.PipeReader
	inW, outW, errW *io.PipeWriter
	done            chan struct{}
	closing, ending sync.Once
}

func (p *fakeProcess) Stdin() io.WriteCloser { return p.inW }
func (p *fakeProcess) Stdout() io.Reader     { return p.outR }
func (p *fakeProcess) Stderr() io.Reader     { return p.errR }
func (p *fakeProcess) Wait() (int, error)    { <-p.done; return p.host.exit, nil }
func (p *fakeProcess) Close() error {
	p.closing.Do(func() {
		p.host.mu.Lock()
		p.host.ended++
		p.host.mu.Unlock()
	})
	p.end()
	return nil
}

func (p *fakeProcess) end() {
	p.ending.Do(func() {
		close(p.done)
		for _, c := range []io.Closer{p.inR, p.outW, p.errW} {
			_ = c.Close()
		}
	})
}

func (p *fakeProcess) run() {
	if p.write(p.host.login) {
		return
	}
	lines := bufio.NewScanner(p.inR)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "echo ") {
			p.host.mu.Lock()
			p.host.lines = append(p.host.lines, line)
			p.host.mu.Unlock()
		}
		if p.obey(line) {
			return
		}
	}
}

// obey does what virsh, or the script before it, does with a line. It returns whether the process is over.
func (p *fakeProcess) obey(line string) bool {
	if strings.HasPrefix(line, "@ ") {
		return false
	}
	r := reply{}
	switch {
	case p.host.quiet:
	case p.host.plain:
		r.stdout = prompt
	default:
		r.stdout = prompt + line + "\n"
	}
	var a, b string
	if n, _ := fmt.Sscanf(line, "echo --err %q %q", &a, &b); n == 2 {
		r.stderr = "error: " + a + " " + b + "\n"
		return p.write(r)
	}
	if n, _ := fmt.Sscanf(line, "echo %q %q", &a, &b); n == 2 {
		r.stdout += a + " " + b
		return p.write(r)
	}
	answer := p.host.answer(line)
	answer.stdout = r.stdout + answer.stdout
	return p.write(answer)
}

func (p *fakeProcess) write(r reply) bool {
	chunk := 1 << 16
	if p.host.bytewise {
		chunk = 1
	}
	for text := r.stderr; text != ""; text = text[min(chunk, len(text)):] {
		_, _ = io.WriteString(p.errW, text[:min(chunk, len(text))])
	}
	for text := r.stdout; text != ""; text = text[min(chunk, len(text)):] {
		_, _ = io.WriteString(p.outW, text[:min(chunk, len(text))])
	}
	switch r.end {
	case "exit":
		p.end()
	case "hang":
		<-p.done
	}
	return r.end != ""
}

// answers replies to each command by the longest key that it begins with, and any other with nothing.
func answers(table map[string]reply) func(string) reply {
	return func(line string) reply {
		best, r := -1, reply{}
		for key, value := range table {
			if strings.HasPrefix(line, key) && len(key) > best {
				best, r = len(key), value
			}
		}
		return r
	}
}
