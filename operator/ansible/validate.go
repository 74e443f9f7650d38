// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// Limits of a Request.
const (
	maxHostKeys   = 16
	maxSkipTags   = 32
	maxKeySize    = 64 << 10
	maxPassword   = 1024
	maxDeadline   = 48 * time.Hour
	maxDNSName    = 253
	reservedNames = "all,ungrouped,localhost"
)

var (
	keyPattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
	namePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
	dnsPattern  = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9])?)*\.?$`)
	userPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,31}$`)
	tagPattern  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$`)
)

// Validate returns an error with reason Rejected that names the first field that is wrong. What it lets pass is data: nothing in it is an
// option of ssh, a pattern of hosts, or a variable by which Ansible could be made to connect elsewhere.
func (r *Request) Validate() error {
	if err := r.validate(); err != nil {
		return &Error{Reason: Rejected, Message: err.Error()}
	}
	return nil
}

func (r *Request) validate() error {
	switch {
	case !keyPattern.MatchString(r.Key):
		return wrong("key", r.Key, `must consist of letters, digits, "-", "." and "_", begin with a letter or digit, and have at most 128 characters`)
	case !slices.Contains(Playbooks, r.Playbook):
		return wrong("playbook", string(r.Playbook), fmt.Sprintf("must be one of %v", Playbooks))
	case len(r.Hosts) == 0:
		return fmt.Errorf("hosts is empty; a run needs at least one")
	case r.Deadline <= 0 || r.Deadline > maxDeadline:
		return fmt.Errorf("deadline is %s; it must be above 0 and at most %s", r.Deadline, maxDeadline)
	case len(r.SkipTags) > maxSkipTags:
		return fmt.Errorf("skipTags has %d entries; at most %d are allowed", len(r.SkipTags), maxSkipTags)
	}
	for i, tag := range r.SkipTags {
		if !tagPattern.MatchString(tag) {
			return wrong(fmt.Sprintf("skipTags[%d]", i), tag, `must consist of letters, digits, "_", "." and "-", and begin with none of the last two`)
		}
	}
	if err := validateVariables("variables", r.Variables); err != nil {
		return err
	}
	names, places := map[string]bool{}, map[string]bool{}
	for i := range r.Hosts {
		h := &r.Hosts[i]
		field := fmt.Sprintf("hosts[%d]", i)
		if err := h.validate(field); err != nil {
			return err
		}
		if names[h.Name] {
			return wrong(field+".name", h.Name, "is the name of another host of this run")
		}
		if places[h.Place()] {
			return wrong(field+".address", h.Place(), "is the address and port of another host of this run")
		}
		names[h.Name], places[h.Place()] = true, true
	}
	return nil
}

// Place is the host's address and port as known_hosts writes them, in one spelling for one address.
func (h *Host) Place() string {
	address := strings.ToLower(strings.TrimSuffix(h.Address, "."))
	if ip, err := netip.ParseAddr(address); err == nil {
		address = ip.Unmap().String()
	}
	return fmt.Sprintf("[%s]:%d", address, h.Port)
}

func (h *Host) validate(field string) error {
	switch {
	case len(h.Name) > maxDNSName || !namePattern.MatchString(h.Name) || slices.Contains(strings.Split(reservedNames, ","), h.Name):
		return wrong(field+".name", h.Name, `must consist of lower-case letters, digits, "." and "-", as NAME.NAMESPACE does, and be none of `+reservedNames)
	case !validAddress(h.Address):
		return wrong(field+".address", h.Address, "must be a name of DNS or an IP address, without port, brackets and zone")
	case h.Port < 1 || h.Port > 65535:
		return fmt.Errorf("%s.port is %d; it must be between 1 and 65535", field, h.Port)
	case !userPattern.MatchString(h.User):
		return wrong(field+".user", h.User, `must be the name of an account: letters, digits, "_", "." and "-", beginning with a letter or "_", at most 32`)
	case len(h.HostKeys) == 0 || len(h.HostKeys) > maxHostKeys:
		return fmt.Errorf("%s.hostKeys has %d entries; it must have between 1 and %d", field, len(h.HostKeys), maxHostKeys)
	case len(h.BecomePassword) > maxPassword || strings.ContainsAny(h.BecomePassword, "\n\r\x00"):
		return fmt.Errorf("%s.becomePassword must be one line of at most %d bytes", field, maxPassword)
	}
	for i, key := range h.HostKeys {
		if !validHostKey(key) {
			return wrong(fmt.Sprintf("%s.hostKeys[%d]", field, i), key, "must read TYPE BASE64, as a host's /etc/ssh/ssh_host_*_key.pub begins")
		}
	}
	if err := validatePrivateKey(h.PrivateKey); err != nil {
		return fmt.Errorf("%s.privateKey %w", field, err)
	}
	return validateVariables(field+".variables", h.Variables)
}

func validAddress(address string) bool {
	if ip, err := netip.ParseAddr(address); err == nil {
		return ip.Zone() == ""
	}
	return len(address) <= maxDNSName && dnsPattern.MatchString(address)
}

func validHostKey(line string) bool {
	kind, encoded, found := strings.Cut(line, " ")
	if !found {
		return false
	}
	blob, err := base64.StdEncoding.Strict().DecodeString(encoded)
	// The decoder overlooks line ends.
	if err != nil || strings.ContainsAny(encoded, "\r\n") {
		return false
	}
	key, err := ssh.ParsePublicKey(blob)
	return err == nil && key.Type() == kind
}

// validatePrivateKey lets an absent key pass: not every backend needs one. Its errors do not have the key.
func validatePrivateKey(key string) error {
	if key == "" {
		return nil
	}
	if len(key) > maxKeySize {
		return fmt.Errorf("has %d bytes; a key has at most %d", len(key), maxKeySize)
	}
	_, err := ssh.ParseRawPrivateKey([]byte(key))
	if _, ok := err.(*ssh.PassphraseMissingError); ok { //nolint:errorlint // The parser documents this very type.
		return fmt.Errorf("is protected by a passphrase; give a key without one")
	}
	if err != nil {
		return fmt.Errorf("is not an SSH private key in a format of OpenSSH")
	}
	return nil
}

// wrong says what is wrong with a field. The value is quoted, so that it cannot forge lines of a log, and cut.
func wrong(field, value, must string) error {
	const enough = 80
	if len(value) > enough {
		value = value[:enough] + "…"
	}
	return fmt.Errorf("%s is %q; it %s", field, value, must)
}
