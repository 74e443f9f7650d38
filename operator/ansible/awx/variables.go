// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package awx

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caplv/caplv/operator/ansible"
)

const (
	// keyVariable carries the key of a run, deadlineVariable its deadline in seconds: AWX has no other place that its own restart keeps.
	keyVariable      = "caplv_run_key"
	deadlineVariable = "caplv_run_deadline"
)

var (
	keyPattern  = regexp.MustCompile("^[A-Za-z0-9._-]{1,128}$")
	tagPattern  = regexp.MustCompile("^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")
	namePattern = regexp.MustCompile("^[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?([.][A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?)+$")
	// What a host is reached by ends up in an argument of ssh.
	addressPattern = regexp.MustCompile("^[A-Za-z0-9:]([A-Za-z0-9.:_-]*[A-Za-z0-9:])?$")
	hostKeyPattern = regexp.MustCompile("^[a-z0-9@.-]{1,64} [A-Za-z0-9+/]+={0,2}$")
	// secretPattern matches names of variables whose texts AWX would show to everybody who may see the job.
	secretPattern = regexp.MustCompile("(?i)(^|_|-)(pass|passw(or)?d|passphrase|token|secret|private_?key|api_?key|key_?data)$")
)

// pins are the variables that have ssh verify the host's key, which AWX on its own does not.
var pins = []string{"ansible_host_key_checking", "ansible_ssh_extra_args", "ansible_sftp_extra_args", "ansible_scp_extra_args"}

// limitOf is the limit of a run: the names of its hosts, which nothing in them makes a pattern. A group has no dot in its name.
func limitOf(hosts []ansible.Host) (string, error) {
	if len(hosts) == 0 {
		return "", rejected("a run needs a host: without a limit, AWX would run the playbook on all hosts")
	}
	names := make([]string, 0, len(hosts))
	for _, host := range hosts {
		if len(host.Name) > 253 || !namePattern.MatchString(host.Name) {
			return "", rejected("the host %q cannot be a limit of AWX: it must read NAME.NAMESPACE, as in the inventory", line(host.Name, 64))
		}
		if slices.Contains(names, host.Name) {
			return "", rejected("the host %q is named twice", host.Name)
		}
		names = append(names, host.Name)
	}
	return strings.Join(names, ","), nil
}

// variablesOf are the extra variables of a run. AWX marks what comes with a launch as unsafe, so no text in them is evaluated; and keeps it in
// its database for everybody to read who may see the job, so nothing secret may be in it.
func variablesOf(request *ansible.Request) (map[string]any, error) {
	variables := maps.Clone(request.Variables)
	if variables == nil {
		variables = map[string]any{}
	}
	first := request.Hosts[0]
	for _, host := range request.Hosts[1:] {
		if len(host.Variables)+len(first.Variables) > 0 && !reflect.DeepEqual(host.Variables, first.Variables) {
			return nil, rejected("AWX has one set of variables a job: %s and %s have variables of their own, so ask for a run for each", first.Name, host.Name)
		}
	}
	maps.Copy(variables, first.Variables)
	for _, name := range append([]string{keyVariable, deadlineVariable}, pins...) {
		if _, taken := variables[name]; taken {
			return nil, rejected("the variable %s is set for each run, and cannot be given", name)
		}
	}
	if where := findSecret("", variables, secretsOf(request.Hosts)); where != "" {
		return nil, rejected("the variable %s looks like a secret, and AWX would show it to everybody who may see the job: keep it in a credential, or in the inventory with Vault",
			where)
	}
	arguments, err := pinArguments(request.Hosts)
	if err != nil {
		return nil, err
	}
	variables[keyVariable] = request.Key
	variables[deadlineVariable] = int(request.Deadline.Seconds())
	variables[pins[0]] = true
	for _, name := range pins[1:] {
		variables[name] = arguments
	}
	return variables, nil
}

// secretsOf are the texts that come with hosts for other backends, and are never sent.
func secretsOf(hosts []ansible.Host) []string {
	var secrets []string
	for _, host := range hosts {
		for _, secret := range []string{strings.TrimSpace(host.PrivateKey), host.BecomePassword} {
			if secret != "" {
				secrets = append(secrets, secret)
			}
		}
	}
	return secrets
}

// findSecret returns where in a value a secret is, such as caplv_base_images[0].sources[1].password, and "" when there is none.
func findSecret(path string, value any, secrets []string) string {
	switch v := value.(type) {
	case string:
		if strings.Contains(v, "PRIVATE KEY-----") || slices.ContainsFunc(secrets, func(s string) bool { return v == s || len(s) > 7 && strings.Contains(v, s) }) {
			return path
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			inner := strings.TrimPrefix(path+"."+name, ".")
			if text, ok := v[name].(string); ok && text != "" && secretPattern.MatchString(name) {
				return inner
			}
			if found := findSecret(inner, v[name], secrets); found != "" {
				return found
			}
		}
	case nil, bool, int, int32, int64, float64:
	default:
		// Slices and maps of other types.
		list := reflect.ValueOf(value)
		switch list.Kind() {
		case reflect.Slice, reflect.Array:
			for i := range list.Len() {
				if found := findSecret(fmt.Sprintf("%s[%d]", path, i), list.Index(i).Interface(), secrets); found != "" {
					return found
				}
			}
		case reflect.Map:
			generic := map[string]any{}
			for entries := list.MapRange(); entries.Next(); {
				generic[fmt.Sprint(entries.Key().Interface())] = entries.Value().Interface()
			}
			return findSecret(path, generic, secrets)
		default:
		}
	}
	return ""
}

// pinArguments are the arguments that have ssh accept the hosts' keys and no others. There is no file to put them into on the other side, so a
// command prints them (OpenSSH 8.5).
func pinArguments(hosts []ansible.Host) (string, error) {
	var words []string
	for _, host := range hosts {
		if len(host.HostKeys) == 0 {
			return "", rejected("the host %s has no host key, and would not be verified", host.Name)
		}
		for _, key := range host.HostKeys {
			if !hostKeyPattern.MatchString(key) {
				return "", rejected("a host key of %s must read TYPE BASE64", host.Name)
			}
			kind, base64, _ := strings.Cut(key, " ")
			// ssh puts there what it looks for: with one host, whatever the inventory calls it.
			at := "%H"
			if len(hosts) > 1 {
				var err error
				if at, err = knownHost(host); err != nil {
					return "", err
				}
			}
			words = append(words, at, kind, base64)
		}
	}
	command := `KnownHostsCommand=/usr/bin/printf "%%s %%s %%s\n" ` + strings.Join(words, " ")
	return "-o StrictHostKeyChecking=yes -o UserKnownHostsFile=/dev/null -o GlobalKnownHostsFile=/dev/null -o '" + command + "'", nil
}

// knownHost is how a file of known hosts names a host.
func knownHost(host ansible.Host) (string, error) {
	if !addressPattern.MatchString(host.Address) {
		return "", rejected("the address of %s must be a name or an IP address", host.Name)
	}
	if host.Port == 0 || host.Port == 22 {
		return host.Address, nil
	}
	return "[" + strings.Trim(host.Address, "[]") + "]:" + strconv.Itoa(host.Port), nil
}
