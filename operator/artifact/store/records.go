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
	"syscall"

	"github.com/caplv/caplv/operator/artifact/fault"
)

// maxRecord is more than any record has.
const maxRecord = 64 << 10

// Record is what a source had when it was last asked.
type Record struct {
	// Version is what the server said about the file.
	Version json.RawMessage `json:"version"`
	// SHA256 and Size are those of the decompressed file.
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// Record returns what is known of a source, and whether anything is.
func (s *Store) Record(key string) (Record, bool) {
	var r Record
	text, err := readFile(filepath.Join(s.dir, recordDir, key))
	if err != nil || json.Unmarshal(text, &r) != nil || !digestPattern.MatchString(r.SHA256) {
		return Record{}, false
	}
	return r, true
}

// SetRecord remembers what a source had.
func (s *Store) SetRecord(key string, r Record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fault.New(fault.CacheFailed, fault.Other, "the record of a source cannot be written").Because(err)
	}
	return writeFile(filepath.Join(s.dir, recordDir, key), text, true)
}

// readFile reads a small file, and no symbolic link.
func readFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxRecord))
}

// writeFile replaces a small file in one step. DURABLE has it survive a power cut too.
func writeFile(path string, text []byte, durable bool) error {
	next := path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failed(next, err)
	}
	file, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return failed(next, err)
	}
	defer file.Close()
	if _, err := file.Write(text); err != nil {
		return failed(next, err)
	}
	if durable {
		if err := file.Sync(); err != nil {
			return failed(next, err)
		}
	}
	if err := os.Rename(next, path); err != nil {
		return failed(path, err)
	}
	if durable {
		if err := syncDir(filepath.Dir(path)); err != nil {
			return failed(path, err)
		}
	}
	return nil
}
