// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package virsh

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

const (
	prompt = "virsh # "
	// maxOutput bounds the output of one command, and chunkSize one read of it, in bytes.
	maxOutput = 16 << 20
	chunkSize = 16 << 10
	// lastWords is how long a process that has ended may take to say why.
	lastWords = 5 * time.Second
)

var errOutputTooLarge = fmt.Errorf("a command wrote more than %d MiB", maxOutput>>20)

// output is what one command wrote.
type output struct{ stdout, stderr string }

// process is a running script with virsh in it. It is used by one caller at a time.
type process struct {
	remote         Process
	stdout, stderr *stream
	// mark delimits outputs; it is random, so that no output can contain it.
	mark string
	seq  int
	// echoes says that virsh repeats its input behind its prompt, as it does when it was built with readline.
	echoes bool
	once   sync.Once
}

// startProcess starts the script and waits until virsh answers.
func startProcess(ctx context.Context, start Starter, command string) (*process, error) {
	remote, err := start(ctx, command)
	if err != nil {
		return nil, err
	}
	p := &process{
		remote: remote, mark: "caplv-" + rand.Text(),
		stdout: newStream(remote.Stdout()), stderr: newStream(remote.Stderr()),
	}
	if err := p.greet(ctx); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// greet learns from the first marker whether virsh echoes, and swallows what the account's login says before it: a shell that
// warns of a missing locale is no error of the first command.
func (p *process) greet(ctx context.Context) error {
	end := p.mark + " hello."
	if err := p.write(ctx, p.markers("hello.")); err != nil {
		return p.explain(ctx, err)
	}
	before, err := p.stdout.until(ctx, end)
	if err != nil {
		return p.explain(ctx, err)
	}
	p.echoes = strings.Contains(before, p.mark)
	said, err := p.stderr.until(ctx, end)
	if err != nil {
		return p.explain(ctx, err)
	}
	// A virsh without a daemon ends. Should one stay, it has said so by now.
	if e := classify("", said); e.Reason == LibvirtUnavailable {
		return e
	}
	return nil
}

// markers are the commands that end the output of what was written before them.
func (p *process) markers(suffix string) string {
	return fmt.Sprintf("echo %q %q\necho --err %q %q\n", p.mark, suffix, p.mark, suffix)
}

// do executes commands in one go and returns the output of each. An error is one of the process or of the transport,
// after which the process must not be used.
func (p *process) do(ctx context.Context, commands ...command) ([]output, error) {
	var text strings.Builder
	first := p.seq + 1
	for _, c := range commands {
		p.seq++
		text.WriteString(c.line + "\n" + p.markers(fmt.Sprintf("%d.", p.seq)))
	}
	if err := p.write(ctx, text.String()); err != nil {
		return nil, p.explain(ctx, err)
	}
	outputs := make([]output, len(commands))
	for i := range commands {
		// What virsh echoes has quotes in it, and is therefore not taken for the marker.
		end := fmt.Sprintf("%s %d.", p.mark, first+i)
		stdout, err := p.stdout.until(ctx, end)
		if err != nil {
			return nil, p.explain(ctx, err)
		}
		stderr, err := p.stderr.until(ctx, end)
		if err != nil {
			return nil, p.explain(ctx, err)
		}
		outputs[i] = output{stdout: withoutPrompts(stdout, p.echoes), stderr: strings.TrimSuffix(stderr, "error: ")}
		// virsh connects again by itself, but nobody knows what the daemon did in between.
		if err := outputs[i].failure(commands[i]); ReasonOf(err) == LibvirtUnavailable {
			return nil, err
		}
	}
	return outputs, nil
}

// withoutPrompts removes virsh's prompts, and its echoes with them, from the output of a command.
func withoutPrompts(text string, echoes bool) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prompt) && echoes {
			continue
		}
		for strings.HasPrefix(line, prompt) {
			line = strings.TrimPrefix(line, prompt)
		}
		kept.WriteString(line)
	}
	return kept.String()
}

// put writes a file into the script's directory. Its name is a constant of this package.
func (p *process) put(ctx context.Context, name, content string) error {
	err := p.write(ctx, "@ "+name+" "+base64.StdEncoding.EncodeToString([]byte(content))+"\n")
	if err != nil {
		return p.explain(ctx, err)
	}
	return nil
}

// write gives text to the script. A remote side that does not read does not hold the caller.
func (p *process) write(ctx context.Context, text string) error {
	written := make(chan error, 1)
	go func() {
		_, err := io.WriteString(p.remote.Stdin(), text)
		written <- err
	}()
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// explain turns the end of the process into the error that was its cause: what it said, how it ended, or the transport.
func (p *process) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("waiting for virsh: %w", ctx.Err())
	}
	if errors.Is(err, errOutputTooLarge) {
		return &Error{Reason: Unknown, Message: err.Error()}
	}
	// Whatever ended it has been said by now; the process is over, so this need not take long.
	ending, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	said, heard := p.stderr.rest(ending), p.stdout.rest(ending)
	exit, waitErr := p.wait(ending)
	switch e := classify("", said); {
	case e.Reason != Unknown:
		return e
	case ctx.Err() != nil:
		return fmt.Errorf("waiting for the end of virsh: %w", ctx.Err())
	case waitErr != nil && ending.Err() == nil:
		return waitErr
	case e.Message != "":
		return &Error{Reason: Unknown, Message: "virsh ended: " + e.Message}
	case strings.TrimSpace(heard) != "" && !strings.Contains(heard, p.mark):
		// The account's shell runs no commands, and says so where nobody expects it.
		return &Error{Reason: Unknown, Message: "virsh did not start; the account's shell said: " + oneLine(heard)}
	}
	return &Error{Reason: LibvirtUnavailable, Message: fmt.Sprintf("virsh ended unexpectedly with status %d", exit)}
}

func (p *process) wait(ctx context.Context) (int, error) {
	type result struct {
		exit int
		err  error
	}
	done := make(chan result, 1)
	go func() {
		exit, err := p.remote.Wait()
		done <- result{exit, err}
	}()
	select {
	case r := <-done:
		return r.exit, r.err
	case <-ctx.Done():
		return -1, ctx.Err()
	}
}

// close ends the process. It does not close the input by itself, which could wait for a host that does not read: with the
// session, the input ends as well.
func (p *process) close() {
	p.once.Do(func() {
		_ = p.remote.Close()
		p.stdout.stop()
		p.stderr.stop()
	})
}

// stream reads in the background, so that neither of two streams can block the other.
type stream struct {
	chunks chan []byte
	quit   chan struct{}
	err    error // Set before chunks is closed.
	once   sync.Once
	buffer []byte // What was read and not yet consumed.
}

func newStream(r io.Reader) *stream {
	s := &stream{chunks: make(chan []byte, 64), quit: make(chan struct{})}
	go func() {
		defer close(s.chunks)
		for {
			chunk := make([]byte, chunkSize)
			n, err := r.Read(chunk)
			if n > 0 {
				select {
				case s.chunks <- chunk[:n]:
				case <-s.quit:
					s.err = io.ErrClosedPipe
					return
				}
			}
			if err != nil {
				s.err = err
				return
			}
		}
	}()
	return s
}

// until returns what comes before the marker, and consumes both.
func (s *stream) until(ctx context.Context, marker string) (string, error) {
	searched := 0
	for {
		if i := bytes.Index(s.buffer[searched:], []byte(marker)); i >= 0 {
			text := string(s.buffer[:searched+i])
			s.buffer = s.buffer[searched+i+len(marker):]
			return strings.TrimPrefix(text, "\n"), nil
		}
		searched = max(0, len(s.buffer)-len(marker))
		if len(s.buffer) > maxOutput {
			return "", errOutputTooLarge
		}
		select {
		case chunk, ok := <-s.chunks:
			if !ok {
				return "", s.err
			}
			s.buffer = append(s.buffer, chunk...)
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// rest returns what is left of a stream that has ended or is about to.
func (s *stream) rest(ctx context.Context) string {
	for {
		select {
		case chunk, ok := <-s.chunks:
			if !ok {
				return string(s.buffer)
			}
			if len(s.buffer) < maxOutput {
				s.buffer = append(s.buffer, chunk...)
			}
		case <-ctx.Done():
			return string(s.buffer)
		}
	}
}

func (s *stream) stop() { s.once.Do(func() { close(s.quit) }) }
