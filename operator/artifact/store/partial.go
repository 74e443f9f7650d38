// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/caplv/caplv/operator/artifact/fault"
)

// What belongs to one unfinished fetch.
const (
	dataSuffix    = ".data"
	journalSuffix = ".json"
	payloadSuffix = ".payload"
)

// partialLife is how long an unfinished fetch is kept for somebody who goes on with it.
const partialLife = 24 * time.Hour

// Journal says which bytes of an unfinished fetch are good, after whatever has stopped it.
type Journal struct {
	// Version is what the server said about the file.
	Version json.RawMessage `json:"version"`
	// Offset is the number of good bytes, and SHA256 their digest.
	Offset int64  `json:"offset"`
	SHA256 string `json:"sha256"`
}

// Partial is the disk's side of a fetch: the bytes as they are transferred, and beside them the decompressed ones where those differ.
type Partial struct {
	store   *Store
	key     string
	data    *os.File
	payload *os.File
	// unpacking says that payload is what will be kept, and data what is thrown away in the end.
	unpacking atomic.Bool
	flushed   flusher
	// Journal is what an earlier fetch has left; its Offset is 0 when there is nothing.
	Journal Journal
}

// Begin goes on with the unfinished fetch of a key, or begins it. One at a time may have a key.
func (s *Store) Begin(key string) (*Partial, error) {
	s.mu.Lock()
	use := s.partials[key]
	if use == nil {
		use = &partialUse{}
		s.partials[key] = use
	}
	use.active = true
	s.mu.Unlock()
	p := &Partial{store: s, key: key}
	data, err := os.OpenFile(p.path(dataSuffix), os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		p.Close()
		return nil, failed(p.path(dataSuffix), err)
	}
	p.data = data
	if err := p.restore(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Partial) path(suffix string) string {
	return filepath.Join(p.store.dir, partialDir, p.key+suffix)
}

// restore reads the journal and cuts off what it does not vouch for.
func (p *Partial) restore() error {
	info, err := p.data.Stat()
	if err != nil {
		return failed(p.data.Name(), err)
	}
	text, err := readFile(p.path(journalSuffix))
	if err == nil && json.Unmarshal(text, &p.Journal) != nil {
		p.Journal = Journal{}
	}
	if p.Journal.Offset < 0 || p.Journal.Offset > info.Size() {
		p.Journal = Journal{}
	}
	p.flushed = flusher{p.Journal.Offset, p.Journal.Offset}
	return p.truncate(p.Journal.Offset)
}

func (p *Partial) truncate(size int64) error {
	if err := p.data.Truncate(size); err != nil {
		return failed(p.data.Name(), err)
	}
	if _, err := p.data.Seek(0, io.SeekStart); err != nil {
		return failed(p.data.Name(), err)
	}
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	use := p.store.partials[p.key]
	p.store.used += size - use.size
	use.size = size
	return nil
}

// Reset drops all bytes.
func (p *Partial) Reset() error {
	p.Journal, p.flushed = Journal{}, flusher{}
	p.unpacking.Store(false)
	if p.payload != nil {
		p.payload.Close()
		p.payload = nil
	}
	for _, suffix := range []string{journalSuffix, payloadSuffix} {
		if err := os.Remove(p.path(suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return failed(p.path(suffix), err)
		}
	}
	return p.truncate(0)
}

// Read reads transferred bytes from the beginning on.
func (p *Partial) Read(b []byte) (int, error) { return p.data.Read(b) }

// Write adds transferred bytes, once all earlier ones are read.
func (p *Partial) Write(b []byte) (int, error) {
	n, err := p.write(p.data, b)
	if !p.unpacking.Load() {
		p.flushed.wrote(p.data, n)
	}
	return n, err
}

func (p *Partial) write(file *os.File, b []byte) (int, error) {
	if err := p.store.Grow(p.key, int64(len(b))); err != nil {
		return 0, err
	}
	n, err := file.Write(b)
	if err != nil {
		return n, failed(file.Name(), err)
	}
	return n, nil
}

// Checkpoint notes how many transferred bytes are good. What it says is compared with the bytes before they are used.
func (p *Partial) Checkpoint(j Journal) error {
	text, err := json.Marshal(j)
	if err != nil {
		return fault.New(fault.CacheFailed, fault.Other, "the journal cannot be written").Because(err)
	}
	return writeFile(p.path(journalSuffix), text, false)
}

// Payload begins the file of decompressed bytes.
func (p *Partial) Payload() (io.Writer, error) {
	path := p.path(payloadSuffix)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, failed(path, err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, failed(path, err)
	}
	p.payload = file
	p.unpacking.Store(true)
	return &writer{p: p}, nil
}

type writer struct {
	p       *Partial
	flushed flusher
}

func (w *writer) Write(b []byte) (int, error) {
	n, err := w.p.write(w.p.payload, b)
	w.flushed.wrote(w.p.payload, n)
	return n, err
}

// flusher has the disk begin early with what is written, so that the sync at the end does not wait for all of it.
type flusher struct{ begun, end int64 }

const (
	flushBytes         = 16 << 20
	syncFileRangeWrite = 2
)

func (f *flusher) wrote(file *os.File, n int) {
	f.end += int64(n)
	if f.end-f.begun < flushBytes {
		return
	}
	// It is a hint: the sync at the end reports errors.
	_ = syscall.SyncFileRange(int(file.Fd()), f.begun, f.end-f.begun, syncFileRangeWrite)
	f.begun = f.end
}

// Commit keeps the decompressed bytes under their digest, pinned, and drops the rest.
func (p *Partial) Commit(digest string, size int64) error {
	file := p.data
	if p.payload != nil {
		file = p.payload
	}
	if err := file.Chmod(0o400); err != nil {
		return failed(file.Name(), err)
	}
	if err := file.Sync(); err != nil {
		return failed(file.Name(), err)
	}
	if err := p.store.commit(file.Name(), digest, size); err != nil {
		return err
	}
	p.Discard()
	return nil
}

// Discard drops the fetch.
func (p *Partial) Discard() {
	p.Close()
	p.store.mu.Lock()
	defer p.store.mu.Unlock()
	p.store.dropPartial(p.key)
}

// Close stops the fetch. The transferred bytes that the journal vouches for are there for the next one.
func (p *Partial) Close() {
	if p.data != nil {
		p.data.Close()
		p.data = nil
	}
	if p.payload != nil {
		p.payload.Close()
		p.payload = nil
		_ = os.Remove(p.path(payloadSuffix)) // What is left is dropped at the next start.
	}
	s := p.store
	s.mu.Lock()
	defer s.mu.Unlock()
	use := s.partials[p.key]
	if use == nil {
		return
	}
	use.active = false
	size := sizeOf(p.path(dataSuffix))
	s.used += size - use.size
	use.size = size
}

func sizeOf(path string) int64 {
	if info, err := os.Lstat(path); err == nil {
		return info.Size()
	}
	return 0
}

// dropPartial removes the files of an unfinished fetch. The caller holds the lock.
func (s *Store) dropPartial(key string) {
	for _, suffix := range []string{journalSuffix, dataSuffix, payloadSuffix} {
		_ = os.Remove(filepath.Join(s.dir, partialDir, key+suffix)) // What cannot be removed is dropped at the next start.
	}
	if use := s.partials[key]; use != nil {
		s.used -= use.size
		delete(s.partials, key)
	}
}

// evictPartial drops one unfinished fetch that nobody goes on with, and says whether there was one.
func (s *Store) evictPartial() bool {
	for key, use := range s.partials {
		if !use.active {
			s.dropPartial(key)
			s.onEvict()
			return true
		}
	}
	return false
}

// loadPartials finds unfinished fetches of an earlier process, and removes what nothing can be done with.
func (s *Store) loadPartials() error {
	dir := filepath.Join(s.dir, partialDir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return failed(dir, err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := regular(path)
		if err != nil {
			return err
		}
		key, isData := strings.CutSuffix(e.Name(), dataSuffix)
		_, isJournal := strings.CutSuffix(e.Name(), journalSuffix)
		if (!isData && !isJournal) || time.Since(info.ModTime()) > partialLife {
			if err := os.Remove(path); err != nil {
				return failed(path, err)
			}
			continue
		}
		if isData {
			s.partials[key] = &partialUse{size: info.Size()}
			s.used += info.Size()
		}
	}
	return nil
}
