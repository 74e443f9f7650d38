// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/caplv/caplv/operator/artifact/fault"
)

// ErrMissing says that the store has no file, or no longer a whole one, with a digest.
var ErrMissing = errors.New("the cache does not have the file")

// Pin returns a file's size and keeps the file until Unpin. A file that this process has not seen yet is read and compared with its digest first,
// which PROGRESS follows in bytes; one that fails is removed, and the error is ErrMissing.
func (s *Store) Pin(ctx context.Context, digest string, progress func(done, total int64)) (int64, error) {
	s.mu.Lock()
	b := s.blobs[digest]
	if b == nil {
		s.mu.Unlock()
		return 0, ErrMissing
	}
	b.pins++
	s.recent.MoveToFront(b.place)
	s.mu.Unlock()

	ok, err := s.verify(ctx, b, progress)
	if err == nil && ok {
		return b.size, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b.pins--
	if err != nil {
		return 0, err
	}
	if b.pins == 0 && s.blobs[digest] == b {
		s.drop(b)
	}
	return 0, ErrMissing
}

// Unpin lets a file go that Pin or Commit has pinned.
func (s *Store) Unpin(digest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.blobs[digest]; b != nil && b.pins > 0 {
		b.pins--
	}
}

// Has says whether there is a file with a digest, without a look into it.
func (s *Store) Has(digest string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blobs[digest] != nil
}

// verify says whether a file is what its name says. Nobody verifies the same file twice at once: callers hold the lock of its digest.
func (s *Store) verify(ctx context.Context, b *blob, progress func(done, total int64)) (bool, error) {
	path := s.Path(b.digest)
	info, err := regular(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	known := b.verified && info.Size() == b.size && info.ModTime().Equal(b.modified)
	s.mu.Unlock()
	if known {
		return true, nil
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return false, failed(path, err)
	}
	defer file.Close()
	sum := sha256.New()
	n, err := io.CopyBuffer(sum, &followed{ctx: ctx, r: file, total: info.Size(), progress: progress}, make([]byte, 1<<20))
	if err != nil {
		if ctx.Err() != nil {
			return false, fault.New(fault.Canceled, fault.Other, "the verification of the cache was canceled").Because(ctx.Err())
		}
		return false, failed(path, err)
	}
	if hex.EncodeToString(sum.Sum(nil)) != b.digest {
		return false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used += n - b.size
	b.size, b.modified, b.verified = n, info.ModTime(), true
	return true, nil
}

// followed is a reader that ends with a context and tells how far it is.
type followed struct {
	ctx         context.Context //nolint:containedctx // A Reader has no other way to learn that nobody waits.
	r           io.Reader
	done, total int64
	progress    func(done, total int64)
}

func (f *followed) Read(p []byte) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := f.r.Read(p)
	f.done += int64(n)
	if f.progress != nil {
		f.progress(f.done, f.total)
	}
	return n, err
}

// commit gives a finished file its place, pinned.
func (s *Store) commit(from, digest string, size int64) error {
	path := s.Path(digest)
	if err := os.Rename(from, path); err != nil {
		return failed(path, err)
	}
	if err := syncDir(filepath.Join(s.dir, blobDir)); err != nil {
		return failed(path, err)
	}
	info, err := regular(path)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.blobs[digest]
	if b == nil {
		b = &blob{digest: digest}
		s.add(b)
	}
	s.used += size - b.size
	b.size, b.modified, b.verified = size, info.ModTime(), true
	b.pins++
	return nil
}
