// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workdir writes what Ansible reads for one batch of runs, with keys and passwords, into a directory that goes with the batch.
package workdir

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/caplv/caplv/operator/ansible"
)

// maxRoot is how long the path of the root may be: the sockets of ssh lie below it, and the kernel allows 107 bytes for one.
const maxRoot = 56

var (
	rootPattern  = regexp.MustCompile(`^/[A-Za-z0-9_./-]+$`)
	batchPattern = regexp.MustCompile(`^[0-9a-f]{10}$`)
)

// Root holds the directories of batches. It should be backed by memory.
type Root struct{ path string }

// Open makes the root, for its owner alone, unless it is there.
func Open(path string) (Root, error) {
	path = filepath.Clean(path)
	switch {
	case !rootPattern.MatchString(path):
		return Root{}, fmt.Errorf("%q must be an absolute path of letters, digits and _ . / -, because it is part of ssh's options", path)
	case len(path) > maxRoot:
		return Root{}, fmt.Errorf("%s has %d characters; at most %d are allowed, because sockets of ssh lie below it", path, len(path), maxRoot)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return Root{}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return Root{}, err
	}
	// The volume of a Pod is everybody's, by default, and may not be ours to change.
	if info.Mode().Perm()&0o077 != 0 {
		path = filepath.Join(path, "private")
		if err := os.MkdirAll(path, 0o700); err != nil {
			return Root{}, err
		}
		if err := os.Chmod(path, 0o700); err != nil { //nolint:gosec // It is a directory.
			return Root{}, err
		}
	}
	return Root{path: path}, nil
}

// Marker is the beginning of the path of each batch's directory.
func (r Root) Marker() string { return r.path + "/" }

// Sweep removes what an earlier life has left. It returns how many directories there were.
func (r Root) Sweep() (int, error) {
	entries, err := os.ReadDir(r.path)
	if err != nil {
		return 0, err
	}
	swept := 0
	var failed []error
	for _, entry := range entries {
		if batchPattern.MatchString(entry.Name()) {
			swept++
			failed = append(failed, os.RemoveAll(filepath.Join(r.path, entry.Name())))
		}
	}
	return swept, errors.Join(failed...)
}

// Dir is the directory of one batch.
type Dir struct {
	// ID names the batch.
	ID   string
	path string
}

// Create writes the directory of a new batch. All of it is its owner's alone.
func (r Root) Create(variables map[string]any, hosts []ansible.Host) (*Dir, error) {
	random := make([]byte, 5)
	_, _ = rand.Read(random) // It never fails.
	d := &Dir{ID: hex.EncodeToString(random)}
	d.path = filepath.Join(r.path, d.ID)
	if err := d.write(variables, hosts); err != nil {
		_ = d.Remove()
		return nil, fmt.Errorf("writing the directory of a run: %w", err)
	}
	return d, nil
}

func (d *Dir) write(variables map[string]any, hosts []ansible.Host) error {
	for _, path := range []string{d.path, d.Home(), d.Temp(), d.ControlPaths(), d.file("keys")} {
		if err := os.Mkdir(path, 0o700); err != nil {
			return err
		}
	}
	for i := range hosts {
		// OpenSSH wants the last line to end.
		key := strings.TrimRight(hosts[i].PrivateKey, "\r\n") + "\n"
		if err := os.WriteFile(d.keyFile(i), []byte(key), 0o600); err != nil {
			return err
		}
	}
	content, err := inventory(variables, hosts, d.keyFile)
	if err != nil {
		return err
	}
	if err := os.WriteFile(d.Inventory(), content, 0o600); err != nil {
		return err
	}
	return os.WriteFile(d.KnownHosts(), knownHosts(hosts), 0o600)
}

// Path is the directory itself, Ansible's working directory.
func (d *Dir) Path() string { return d.path }

// Inventory is the file with hosts and variables.
func (d *Dir) Inventory() string { return d.file("inventory.json") }

// KnownHosts is the file with the hosts' keys.
func (d *Dir) KnownHosts() string { return d.file("known_hosts") }

// Home is the home directory of the programs of the batch, Temp is for their temporary files, and ControlPaths for sockets of ssh.
func (d *Dir) Home() string         { return d.file("home") }
func (d *Dir) Temp() string         { return d.file("tmp") } //nolint:revive // See Home.
func (d *Dir) ControlPaths() string { return d.file("cp") }  //nolint:revive // See Home.

func (d *Dir) file(name string) string { return filepath.Join(d.path, name) }

func (d *Dir) keyFile(index int) string { return filepath.Join(d.path, "keys", strconv.Itoa(index)) }

// Remove removes it with everything in it.
func (d *Dir) Remove() error { return os.RemoveAll(d.path) }
