// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/caplv/caplv/operator/ansible"
)

// MaxEvents is how many bytes of events a run keeps; of what comes after them, only the end.
const MaxEvents = 16 << 20

// Events is the log of one run's events. It is safe for concurrent use.
type Events struct {
	mutex    sync.Mutex
	path     string
	file     *os.File
	size     int64
	sequence int64
	// more is closed when there is an event more, or none any more.
	more  chan struct{}
	ended bool
}

// Events opens the log of a run, to add to it. A line that an earlier life has not finished is dropped.
func (s *Store) Events(key string) (*Events, error) {
	e := &Events{path: filepath.Join(s.path, key, eventsFile), more: make(chan struct{})}
	var err error
	if e.file, err = os.OpenFile(e.path, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, err
	}
	reader := bufio.NewReader(e.file)
	for {
		line, err := reader.ReadBytes('\n')
		var event ansible.Event
		if err != nil || json.Unmarshal(line, &event) != nil {
			break
		}
		e.size += int64(len(line))
		e.sequence = event.Sequence
	}
	if err := e.file.Truncate(e.size); err != nil {
		return nil, errors.Join(err, e.file.Close())
	}
	_, err = e.file.Seek(e.size, io.SeekStart)
	return e, err
}

// EndedEvents opens the log of a run that has ended, to read it.
func (s *Store) EndedEvents(key string) *Events {
	return &Events{path: filepath.Join(s.path, key, eventsFile), ended: true}
}

// Add gives an event its sequence and adds it. After a RunEnded there are no more.
func (e *Events) Add(event ansible.Event) error {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if e.ended {
		return nil
	}
	last := event.Type == ansible.RunEnded
	defer func() {
		close(e.more)
		if e.more = make(chan struct{}); last {
			e.ended = true
			_ = e.file.Close()
		}
	}()
	if e.size >= MaxEvents && !last {
		return nil
	}
	event.Sequence = e.sequence + 1
	line, err := json.Marshal(event)
	if err != nil {
		return err
	}
	n, err := e.file.Write(append(line, '\n'))
	if err != nil {
		// A part of a line would spoil the next one.
		return errors.Join(fmt.Errorf("writing an event: %w", err), e.file.Truncate(e.size), e.rewind())
	}
	e.size += int64(n)
	e.sequence++
	return nil
}

func (e *Events) rewind() error {
	_, err := e.file.Seek(e.size, io.SeekStart)
	return err
}

// state is whether the log has ended, and what is closed when that, or its content, changes. It is asked before reading.
func (e *Events) state() (bool, <-chan struct{}) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return e.ended, e.more
}

// Follow calls tell for each event with a Sequence above after, until the log has ended or done is closed.
func (e *Events) Follow(done <-chan struct{}, after int64, tell func(ansible.Event)) error {
	file, err := os.Open(e.path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	reader := bufio.NewReader(file)
	var line []byte
	for {
		ended, more := e.state()
		for {
			part, err := reader.ReadBytes('\n')
			line = append(line, part...)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			var event ansible.Event
			if err := json.Unmarshal(bytes.TrimSpace(line), &event); err != nil {
				return fmt.Errorf("%s is broken: %w", e.path, err)
			}
			line = line[:0]
			if event.Sequence > after {
				tell(event)
			}
		}
		if ended {
			return nil
		}
		select {
		case <-more:
		case <-done:
			return nil
		}
	}
}
