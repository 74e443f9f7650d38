// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"fmt"
	"net"
	"net/url"
	"strconv"

	"github.com/caplv/caplv/operator/virsh"
)

const defaultSSHPort = 22

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
	u, err := url.Parse(uri)
	if err != nil {
		// The error of net/url repeats the URI, which may hold a password.
		return Endpoint{}, fmt.Errorf("uri is not a URI; it must read qemu+ssh://USER@HOST[:PORT]/system")
	}
	if u.Scheme != "qemu+ssh" {
		return Endpoint{}, fmt.Errorf("uri has the scheme %q; only qemu+ssh is supported", u.Scheme)
	}
	if u.User == nil || u.User.Username() == "" {
		return Endpoint{}, fmt.Errorf("uri names no user; it must read qemu+ssh://USER@HOST[:PORT]/system")
	}
	if _, has := u.User.Password(); has {
		return Endpoint{}, fmt.Errorf("uri holds a password; put an SSH key into the Secret instead")
	}
	if u.Hostname() == "" {
		return Endpoint{}, fmt.Errorf("uri names no host; it must read qemu+ssh://USER@HOST[:PORT]/system")
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return Endpoint{}, fmt.Errorf("uri has query parameters, which are not supported")
	}
	port := defaultSSHPort
	if p := u.Port(); p != "" {
		port, err = strconv.Atoi(p)
		if err != nil || port < 1 || port > 65535 {
			return Endpoint{}, fmt.Errorf("uri has the port %q; it must be between 1 and 65535", p)
		}
	}
	e := Endpoint{User: u.User.Username(), Address: net.JoinHostPort(u.Hostname(), strconv.Itoa(port))}
	switch u.Path {
	case "/system":
		e.Mode = virsh.ModeSystem
	case "/session":
		e.Mode = virsh.ModeSession
	default:
		return Endpoint{}, fmt.Errorf("uri ends in %q; it must end in /system or /session", u.Path)
	}
	return e, nil
}
