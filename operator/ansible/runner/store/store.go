// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package store keeps what is left of runs: for each, a directory by its key with status.json, events.jsonl and output.log. It has no
// secrets: whoever writes has taken them out. It outlives its process, and bounds itself by count and bytes.
package store

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/caplv/caplv/operator/ansible"
)

const (
	statusFile = "status.json"
	eventsFile = "events.jsonl"
	outputFile = "output.log"
)

// Saved is what status.json holds.
type Saved struct {
	// Digest tells requests apart, without secrets.
	Digest string         `json:"digest"`
	Status ansible.Status `json:"status"`
	// Batch names the process that the run was carried out by, together with others.
	Batch string `json:"batch,omitempty"`
}

// Store is a directory of runs.
type Store struct {
	path string
	// maxRuns and maxBytes bound the runs that have ended.
	maxRuns  int
	maxBytes int64
}

// Open makes the directory, for its owner alone, unless it is there.
func Open(path string, maxRuns int, maxBytes int64) (*Store, error) {
	s := &Store{path: filepath.Join(path, "runs"), maxRuns: maxRuns, maxBytes: maxBytes}
	return s, os.MkdirAll(s.path, 0o700)
}

// Load returns what was saved, by key. A directory without a readable status is removed: nobody was promised its run.
func (s *Store) Load() (map[string]Saved, error) {
	entries, err := os.ReadDir(s.path)
	if err != nil {
		return nil, err
	}
	found := map[string]Saved{}
	for _, entry := range entries {
		var saved Saved
		content, err := os.ReadFile(filepath.Join(s.path, entry.Name(), statusFile))
		if err == nil {
			err = json.Unmarshal(content, &saved)
		}
		if err != nil || saved.Status.Key != entry.Name() {
			if err := os.RemoveAll(filepath.Join(s.path, entry.Name())); err != nil {
				return nil, err
			}
			continue
		}
		found[entry.Name()] = saved
	}
	return found, nil
}

// Save writes the status of a run. It is whole or not there, whenever the process ends.
func (s *Store) Save(saved Saved) error {
	dir := filepath.Join(s.path, saved.Status.Key)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	content, err := json.Marshal(saved)
	if err != nil {
		return err
	}
	temp := filepath.Join(dir, statusFile+".new")
	if err := os.WriteFile(temp, content, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, filepath.Join(dir, statusFile))
}

// Output makes the file for what the runs of one batch print: each has it in its own directory.
func (s *Store) Output(keys []string) (*os.File, error) {
	if len(keys) == 0 {
		return nil, errors.New("nobody has output")
	}
	first := filepath.Join(s.path, keys[0], outputFile)
	// A run that is carried out again begins a new file; others may share the old one.
	if err := os.Remove(first); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	file, err := os.OpenFile(first, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	for _, key := range keys[1:] {
		path := filepath.Join(s.path, key, outputFile)
		_ = os.Remove(path)
		if err := os.Link(first, path); err != nil {
			_ = file.Close()
			return nil, err
		}
	}
	return file, nil
}

// Rotate removes the runs that ended first, until those that are left fit. It returns the keys of those it has removed.
func (s *Store) Rotate(ended []ansible.Status) ([]string, error) {
	slices.SortFunc(ended, func(a, b ansible.Status) int {
		return cmp.Or(b.Finished.Compare(a.Finished), cmp.Compare(a.Key, b.Key))
	})
	var removed []string
	var total int64
	for i, status := range ended {
		size, err := s.size(status.Key)
		if err != nil {
			return removed, err
		}
		total += size
		// The latest one stays however large it is: somebody waits for it.
		if i == 0 || i < s.maxRuns && total <= s.maxBytes {
			continue
		}
		if err := os.RemoveAll(filepath.Join(s.path, status.Key)); err != nil {
			return removed, fmt.Errorf("removing an old run: %w", err)
		}
		total -= size
		removed = append(removed, status.Key)
	}
	return removed, nil
}

// size is how many bytes a run has. Output that is shared counts each time: it goes when the last of its runs does.
func (s *Store) size(key string) (int64, error) {
	entries, err := os.ReadDir(filepath.Join(s.path, key))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var size int64
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil {
			size += info.Size()
		}
	}
	return size, nil
}
