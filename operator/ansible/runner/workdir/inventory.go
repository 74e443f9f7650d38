// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package workdir

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/caplv/caplv/operator/ansible"
)

// inventory is what Ansible reads: one group of all hosts. Variables are those of the inventory and not extra variables, so that a host's
// own win over those for all, and so that roles may pass others on to roles.
func inventory(variables map[string]any, hosts []ansible.Host, keyFile func(index int) string) ([]byte, error) {
	entries := map[string]any{}
	for i := range hosts {
		h := &hosts[i]
		entry, err := unsafeVariables(h.Variables)
		if err != nil {
			return nil, fmt.Errorf("the variables of host %s: %w", h.Name, err)
		}
		entry["ansible_host"] = unsafeText(h.Address)
		entry["ansible_port"] = h.Port
		entry["ansible_user"] = unsafeText(h.User)
		entry["ansible_connection"] = "ssh"
		entry["ansible_ssh_private_key_file"] = keyFile(i)
		if h.BecomePassword != "" {
			entry["ansible_become_password"] = unsafeText(h.BecomePassword)
		}
		entries[h.Name] = entry
	}
	all, err := unsafeVariables(variables)
	if err != nil {
		return nil, fmt.Errorf("the variables: %w", err)
	}
	return json.Marshal(map[string]any{"all": map[string]any{"hosts": entries, "vars": all}})
}

// unsafeVariables marks every text as one that Ansible does not evaluate as a template.
func unsafeVariables(variables map[string]any) (map[string]any, error) {
	data, err := json.Marshal(variables)
	if err != nil {
		return nil, err
	}
	var plain map[string]any
	if err := json.Unmarshal(data, &plain); err != nil {
		return nil, err
	}
	marked := make(map[string]any, len(plain)+6)
	for name, value := range plain {
		marked[name] = unsafeValue(value)
	}
	return marked, nil
}

func unsafeValue(value any) any {
	switch v := value.(type) {
	case string:
		return unsafeText(v)
	case []any:
		for i, entry := range v {
			v[i] = unsafeValue(entry)
		}
	case map[string]any:
		for key, entry := range v {
			v[key] = unsafeValue(entry)
		}
	}
	return value
}

// unsafeText is how Ansible's JSON marks a text that is data.
func unsafeText(text string) map[string]any { return map[string]any{"__ansible_unsafe": text} }

// knownHosts has the hosts' keys, and no others.
func knownHosts(hosts []ansible.Host) []byte {
	var b strings.Builder
	for i := range hosts {
		for _, key := range hosts[i].HostKeys {
			fmt.Fprintf(&b, "%s %s\n", place(&hosts[i]), key)
		}
	}
	return []byte(b.String())
}

// place is how ssh looks a host up: without brackets for the usual port.
func place(h *ansible.Host) string {
	if h.Port == 22 {
		return strings.ToLower(h.Address)
	}
	return fmt.Sprintf("[%s]:%d", strings.ToLower(h.Address), h.Port)
}
