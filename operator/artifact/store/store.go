// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package store keeps files on disk by the digest of their content, in bounded space. A file is either there whole or not at all, whenever the
// process or the machine stops.
package store

import (
	"container/list"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"

	"github.com/caplv/caplv/operator/artifact/fault"
)

const (
	blobDir    = "sha256"
	recordDir  = "sources"
	partialDir = "partial"
	lockName   = "lock"
)

var digestPattern = regexp.MustCompile("^[0-9a-f]{64}$")

// blob is a whole file.
type blob struct {
	digest string
	size   int64
	pins   int
	// modified and verified: a blob is read once in the life of a process, and again when it was changed.
	modified time.Time
	verified bool
	place    *list.Element
}

// Store is a directory of this process alone.
type Store struct {
	dir     string
	limit   int64
	lock    *os.File
	onEvict func()

	mu    sync.Mutex
	blobs map[string]*blob
	// recent has the blobs' digests, the most recently used first.
	recent     *list.List
	referenced map[string]bool
	used       int64
	// partials has the bytes that each unfinished fetch has on disk, and whether it goes on.
	partials map[string]*partialUse
}

type partialUse struct {
	size   int64
	active bool
}

// Open takes a directory, and makes it where it is missing. LIMIT is the most bytes that its files may have together. The directory is refused
// while another process has it, and when anything in it is a symbolic link. ONEVICT may be nil; it is called for each file that is removed to make room.
func Open(dir string, limit int64, onEvict func()) (*Store, error) {
	if onEvict == nil {
		onEvict = func() {}
	}
	s := &Store{dir: dir, limit: limit, onEvict: onEvict, blobs: map[string]*blob{}, recent: list.New(), partials: map[string]*partialUse{}}
	for _, d := range []string{"", blobDir, recordDir, partialDir} {
		if err := makeDir(filepath.Join(dir, d)); err != nil {
			return nil, err
		}
	}
	if err := s.takeLock(); err != nil {
		return nil, err
	}
	if err := s.load(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close lets another process have the directory.
func (s *Store) Close() error { return s.lock.Close() }

// Used is the number of bytes that the files have.
func (s *Store) Used() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// Limit is the number of bytes that they may have.
func (s *Store) Limit() int64 { return s.limit }

func makeDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return failed(path, err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return failed(path, err)
	}
	if !info.IsDir() {
		return fault.New(fault.CacheFailed, fault.Other, "%s is a symbolic link and not a directory; give the cache a directory of its own", path)
	}
	return nil
}

// failed is a fault for an error of the file system.
func failed(path string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) {
		return fault.New(fault.CacheFull, fault.Other, "the file system of the cache is full; give it more room, or lower the cache's limit below it").Because(err)
	}
	if inner, ok := errors.AsType[*fs.PathError](err); ok {
		err = inner.Err
	}
	return fault.New(fault.CacheFailed, fault.Other, "the cache cannot use %s: %s; check its permissions and the volume's health", path, err).Because(err)
}

func (s *Store) takeLock() error {
	path := filepath.Join(s.dir, lockName)
	lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return failed(path, err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return fault.New(fault.CacheFailed, fault.Other, "another process uses the cache in %s; give each operator a directory of its own", s.dir).Because(err)
	}
	s.lock = lock
	return nil
}

// load finds what an earlier process has left, the oldest first.
func (s *Store) load() error {
	entries, err := os.ReadDir(filepath.Join(s.dir, blobDir))
	if err != nil {
		return failed(s.dir, err)
	}
	for _, e := range entries {
		path := filepath.Join(s.dir, blobDir, e.Name())
		info, err := regular(path)
		if err != nil {
			return err
		}
		if !digestPattern.MatchString(e.Name()) {
			if err := os.Remove(path); err != nil {
				return failed(path, err)
			}
			continue
		}
		s.add(&blob{digest: e.Name(), size: info.Size(), modified: info.ModTime()})
	}
	return s.loadPartials()
}

func (s *Store) add(b *blob) {
	s.blobs[b.digest] = b
	b.place = s.recent.PushFront(b)
	s.used += b.size
}

// regular returns what is known of a file that nobody else can reach through another name.
func regular(path string) (fs.FileInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fault.New(fault.CacheFailed, fault.Other, "%s is not a regular file, and the cache makes no others; remove it, and find out who made it", path)
	}
	return info, nil
}

// SetReferenced says which digests somebody still wants. Others are removed first when room is needed.
func (s *Store) SetReferenced(digests map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.referenced = digests
}

// Grow makes room for N more bytes of an unfinished file. The error has the reason CacheFull.
func (s *Store) Grow(key string, n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.makeRoom(n); err != nil {
		return err
	}
	s.used += n
	s.partials[key].size += n
	return nil
}

// Fits says whether a file of N bytes can be kept at all, next to what is in use.
func (s *Store) Fits(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var pinned int64
	for _, b := range s.blobs {
		if b.pins > 0 {
			pinned += b.size
		}
	}
	if pinned+n > s.limit {
		return s.full(n)
	}
	return nil
}

func (s *Store) full(n int64) error {
	return fault.New(fault.CacheFull, fault.Other, "the cache may hold %d bytes, and %d more do not fit next to what is in use; raise its limit", s.limit, n)
}

func (s *Store) makeRoom(n int64) error {
	for s.used+n > s.limit {
		if s.evictPartial() || s.evict(true) || s.evict(false) {
			continue
		}
		return s.full(n)
	}
	return nil
}

// evict removes the file whose last use is the longest ago, of those that nobody refers to or of all, and says whether there was one.
func (s *Store) evict(onlyUnreferenced bool) bool {
	for e := s.recent.Back(); e != nil; e = e.Prev() {
		b, ok := e.Value.(*blob)
		if !ok || b.pins > 0 || (onlyUnreferenced && s.referenced[b.digest]) {
			continue
		}
		s.drop(b)
		s.onEvict()
		return true
	}
	return false
}

func (s *Store) drop(b *blob) {
	// What cannot be removed is found again at the next start.
	_ = os.Remove(s.Path(b.digest))
	s.recent.Remove(b.place)
	delete(s.blobs, b.digest)
	s.used -= b.size
}

// Path is where a digest's file is, if it is there.
func (s *Store) Path(digest string) string { return filepath.Join(s.dir, blobDir, digest) }

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening the directory: %w", err)
	}
	defer d.Close()
	return d.Sync()
}
