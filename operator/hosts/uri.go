// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"github.com/caplv/caplv/operator/hosturi"
	"github.com/caplv/caplv/operator/virsh"
)

// Endpoint is what a LibvirtHost's URI says.
type Endpoint struct {
	// User is the account on the host.
	User string
	// Address is HOST:PORT, with IPv6 addresses in brackets.
	Address string
	// Mode says which libvirt daemon is meant.
	Mode virsh.Mode
}

// ParseURI reads qemu+ssh://USER@HOST[:PORT]/system or …/session. Anything else is an error that says what is wrong.
func ParseURI(uri string) (Endpoint, error) {
	u, err := hosturi.Parse(uri)
	if err != nil {
		return Endpoint{}, err
	}
	mode := virsh.ModeSystem
	if u.Path == hosturi.PathSession {
		mode = virsh.ModeSession
	}
	return Endpoint{User: u.User, Address: u.Address, Mode: mode}, nil
}
