// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hosturi reads the URI of a LibvirtHost. It depends on nothing of the operator, so that admission and the
// connection to a host agree on what is valid.
package hosturi

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
)

const defaultSSHPort = 22

// The daemons that a URI can mean, as its path names them.
const (
	PathSystem  = "/system"
	PathSession = "/session"
)

const form = "it must read qemu+ssh://USER@HOST[:PORT]/system"

// URI is what a LibvirtHost's URI says.
type URI struct {
	// User is the account on the host.
	User string
	// Address is HOST:PORT, with IPv6 addresses in brackets.
	Address string
	// Path is PathSystem or PathSession.
	Path string
}

// Parse reads qemu+ssh://USER@HOST[:PORT]/system or …/session. Anything else is an error that says what is wrong, and
// that repeats neither the URI nor a password in it.
func Parse(uri string) (URI, error) {
	u, err := url.Parse(uri)
	if err != nil {
		// The error of net/url repeats the URI, which may hold a password.
		return URI{}, errors.New("uri is not a URI; " + form)
	}
	if u.Scheme != "qemu+ssh" {
		return URI{}, fmt.Errorf("uri has the scheme %q; only qemu+ssh is supported", u.Scheme)
	}
	if u.User == nil || u.User.Username() == "" {
		return URI{}, errors.New("uri names no user; " + form)
	}
	if _, has := u.User.Password(); has {
		return URI{}, errors.New("uri holds a password; put an SSH key into the Secret instead")
	}
	if u.Hostname() == "" {
		return URI{}, errors.New("uri names no host; " + form)
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return URI{}, errors.New("uri has query parameters, which are not supported")
	}
	port := defaultSSHPort
	if p := u.Port(); p != "" {
		port, err = strconv.Atoi(p)
		if err != nil || port < 1 || port > 65535 {
			return URI{}, fmt.Errorf("uri has the port %q; it must be between 1 and 65535", p)
		}
	}
	if u.Path != PathSystem && u.Path != PathSession {
		return URI{}, fmt.Errorf("uri ends in %q; it must end in /system or /session", u.Path)
	}
	return URI{User: u.User.Username(), Address: net.JoinHostPort(u.Hostname(), strconv.Itoa(port)), Path: u.Path}, nil
}
