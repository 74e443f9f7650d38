// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package virsh

import (
	"fmt"
	"regexp"
	"strings"
)

// quote returns a value so that virsh's own parser reads it as one word. The parser knows double quotes and, inside them,
// backslashes. Values that readline, through which virsh reads, would take for keys (control characters, bytes beyond
// ASCII) are refused.
func quote(value string) (string, error) {
	for i := range len(value) {
		if c := value[i]; c < 0x20 || c > 0x7e {
			return "", fmt.Errorf("%q holds a character that cannot be given to virsh", value)
		}
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`, nil
}

// command is one virsh command. verb and flags are constants of this package.
type command struct {
	verb string
	line string
	err  error
}

// notName is what virsh takes for a domain's number or UUID before it looks for a name.
var notName = regexp.MustCompile(`^([0-9]+|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$`)

// domainCmd is cmd for a verb that is given a domain's name. What would name another domain by its number or UUID is
// refused.
func domainCmd(verb, flags, name string) command {
	c := cmd(verb, flags, name)
	if c.err == nil && notName.MatchString(name) {
		c.err = &Error{Reason: InvalidDefinition, Command: verb, Message: fmt.Sprintf("virsh would take %q for a domain's number or UUID", name)}
	}
	return c
}

// cmd returns the command verb with constant flags and quoted values.
func cmd(verb string, flags string, values ...string) command {
	c := command{verb: verb, line: verb}
	if flags != "" {
		c.line += " " + flags
	}
	for _, v := range values {
		quoted, err := quote(v)
		if err != nil {
			c.err = &Error{Reason: InvalidDefinition, Command: verb, Message: err.Error()}
			return c
		}
		// "--" would end virsh's options, but old versions lack it: a value that looks like an option is refused.
		if strings.HasPrefix(v, "-") {
			c.err = &Error{Reason: InvalidDefinition, Command: verb, Message: fmt.Sprintf("%q begins with a dash", v)}
			return c
		}
		c.line += " " + quoted
	}
	return c
}
