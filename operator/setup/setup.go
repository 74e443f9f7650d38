// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package setup reads what the Ansible roles have recorded on a host about how it is set up. It knows nothing of Kubernetes and
// of connections.
package setup

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// File is where the roles keep it: a JSON object, which every account may read (plugins/modules/host_facts.py).
const File = "/etc/ansible/facts.d/caplv.fact"

// MaxSize is how much of File is read, in bytes. Most of it is what off-boarding needs, which is of no interest here.
const MaxSize = 256 << 10

// Facts is how a host was set up. What was not recorded, or in an odd form, is empty.
type Facts struct {
	// RolesVersion is the version of the collection caplv.caplv.
	RolesVersion string
	// Mode is ModeSystem or ModeSession.
	Mode string
	// Account is the service account.
	Account string
}

// The modes, as the roles' variable caplv_mode and the URI of a host name them.
const (
	ModeSystem  = "system"
	ModeSession = "session"
)

var (
	version = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+-]{0,63}$`)
	account = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,31}$`)
)

// Parse reads the content of File. A host that the roles have not set up, or not to the end, and a file that somebody has broken
// give empty facts: they only ever add to what a probe finds out by itself.
func Parse(content []byte) Facts {
	var said map[string]json.RawMessage
	if json.Unmarshal(content, &said) != nil {
		return Facts{}
	}
	text := func(key string, valid func(string) bool) string {
		var value string
		if json.Unmarshal(said[key], &value) != nil || !valid(value) {
			return ""
		}
		return value
	}
	return Facts{
		RolesVersion: text("version", version.MatchString),
		Mode:         text("mode", func(s string) bool { return s == ModeSystem || s == ModeSession }),
		Account:      text("account", account.MatchString),
	}
}

// Differences says in which respects a host was set up for something else than it is used for, and what to do. It is empty where
// there is none.
func (f Facts) Differences(mode, account string) string {
	var differences []string
	if f.Mode != "" && f.Mode != mode {
		differences = append(differences, fmt.Sprintf("it was set up for %s mode and spec.uri ends in /%s: run playbooks/onboard_host.yml with caplv_mode=%s, or correct spec.uri",
			f.Mode, mode, mode))
	}
	if f.Account != "" && f.Account != account {
		differences = append(differences, fmt.Sprintf("it was set up for account %s and spec.uri names %s: run playbooks/onboard_host.yml with caplv_user=%s, or correct spec.uri",
			f.Account, account, account))
	}
	return strings.Join(differences, "; ")
}
