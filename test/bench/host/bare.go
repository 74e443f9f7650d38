// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"path/filepath"
)

// UpBare brings a host up that has systemd, sshd and nothing of libvirt, from an image that test/bench/rootfs.sh builds:
// debian12, debian13, or one with the packages of libvirt installed, such as debian12-libvirt. It accepts the bench's key for
// root. The account of other hosts does not exist.
func (b *Bench) UpBare(ctx context.Context, name, image string) (*Host, error) {
	return b.up(ctx, name, "--image", image)
}

// KnownHosts is the path of a file that has the host's SSH key as ssh wants it.
func (h *Host) KnownHosts() string { return filepath.Join(h.bench.dir, "hosts", h.Name, "known_hosts") }

// PrivateKeyFile is the path of the key that every host of the bench accepts. It exists once a host has come up.
func (b *Bench) PrivateKeyFile() string { return filepath.Join(b.dir, "id_ed25519") }

// Unreachable is a host that does not exist, for tests of what must not get as far as reaching it.
func (b *Bench) Unreachable(name string) *Host {
	return &Host{Name: name, Address: "192.0.2.1", bench: b}
}
