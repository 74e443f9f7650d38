// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

const maxDepth = 16

var (
	// variablePattern is what the roles' variables are called: none of Ansible's own, such as ansible_connection, is among them.
	variablePattern = regexp.MustCompile(`^caplv_[a-z0-9_]{1,64}$`)
	// fieldPattern is for the keys in variables. Those of Ansible's own notations for JSON, such as __ansible_vault, do not match.
	fieldPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}$`)
	// secretPattern is for names of values that nobody may see: a password, but not password_policy.
	secretPattern = regexp.MustCompile(`(?i)(^|[_.-])(password|passphrase|passwd|token|secret|credentials?|private_?key|api_?key|access_?key)$`)
	// notSecrets look like secrets by their names: paths of files that hold one, and a switch.
	notSecrets = []string{"caplv_seal_secret"}
)

// validateVariables checks names and types. The texts themselves may be anything that Ansible can hold.
func validateVariables(field string, variables map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		if !variablePattern.MatchString(name) {
			return fmt.Errorf("%s has the variable %q; variables of the roles begin with caplv_, and have lower-case letters, digits and _", field, clip(name))
		}
		if name == "caplv_hosts" {
			return fmt.Errorf("%s has the variable caplv_hosts; the hosts of a run are those in hosts", field)
		}
		if err := validateValue(field+"."+name, variables[name], 0); err != nil {
			return err
		}
	}
	return nil
}

func validateValue(field string, value any, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s is nested more than %d levels deep", field, maxDepth)
	}
	switch v := value.(type) {
	case nil, bool, float64, int, int32, int64, json.Number:
		return nil
	case string:
		if strings.ContainsRune(v, 0) {
			return fmt.Errorf("%s has a NUL character; leave it out", field)
		}
		return nil
	case []string:
		for i, entry := range v {
			if err := validateValue(fmt.Sprintf("%s[%d]", field, i), entry, depth+1); err != nil {
				return err
			}
		}
		return nil
	case []any:
		for i, entry := range v {
			if err := validateValue(fmt.Sprintf("%s[%d]", field, i), entry, depth+1); err != nil {
				return err
			}
		}
		return nil
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if !fieldPattern.MatchString(key) {
				return fmt.Errorf("%s has the key %q; a key consists of letters, digits and _ . : / -, and begins with a letter or digit", field, clip(key))
			}
			if err := validateValue(field+"."+key, v[key], depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	// Whatever else Go has becomes one of these on its way through JSON.
	plain, err := throughJSON(value)
	if err != nil {
		return fmt.Errorf("%s cannot be written as JSON: %w", field, err)
	}
	return validateValue(field, plain, depth+1)
}

func throughJSON(value any) (any, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var plain any
	err = json.Unmarshal(data, &plain)
	return plain, err
}

func clip(text string) string { return text[:min(len(text), 80)] }

// Secrets are the texts in a request that nobody may see: keys, passwords, and what variables hold under names that say so. Each once.
func (r *Request) Secrets() []string {
	found := map[string]bool{}
	collectSecrets(r.Variables, false, found)
	for i := range r.Hosts {
		h := &r.Hosts[i]
		found[h.PrivateKey], found[h.BecomePassword] = true, true
		collectSecrets(h.Variables, false, found)
	}
	delete(found, "")
	return slices.Sorted(maps.Keys(found))
}

func collectSecrets(value any, secret bool, found map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		for key, entry := range v {
			collectSecrets(entry, secret || secretName(key), found)
		}
	case []any:
		for _, entry := range v {
			collectSecrets(entry, secret, found)
		}
	case nil, bool:
	case string:
		if secret {
			found[v] = true
		}
	case float64, json.Number:
		if secret {
			found[fmt.Sprint(v)] = true
		}
	default:
		if plain, err := throughJSON(v); err == nil {
			collectSecrets(plain, secret, found)
		}
	}
}

func secretName(name string) bool {
	return secretPattern.MatchString(name) && !slices.Contains(notSecrets, name)
}

// WithoutSecrets returns variables with empty texts in place of secrets, for comparing what is wanted.
func WithoutSecrets(variables map[string]any) map[string]any {
	plain, _ := blank(variables, false).(map[string]any)
	return plain
}

func blank(value any, secret bool) any {
	switch v := value.(type) {
	case map[string]any:
		blanked := make(map[string]any, len(v))
		for key, entry := range v {
			blanked[key] = blank(entry, secret || secretName(key))
		}
		return blanked
	case []any:
		blanked := make([]any, len(v))
		for i, entry := range v {
			blanked[i] = blank(entry, secret)
		}
		return blanked
	case nil, bool, string, float64, json.Number:
		if secret {
			return ""
		}
		return v
	}
	if plain, err := throughJSON(value); err == nil {
		return blank(plain, secret)
	}
	return ""
}
