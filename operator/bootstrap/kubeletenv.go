// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"io"
	"regexp"
	"strings"

	"github.com/vincent-petithory/dataurl"
)

const (
	// kubeletEnvPath is what kubelet.service of OpenShift's workers reads as an EnvironmentFile. systemd lets it override
	// Environment= settings, and so the drop-in.
	kubeletEnvPath = "/etc/kubernetes/kubelet-env"
	kubeletEnvMode = 0o644

	providerIDVariable = "KUBELET_PROVIDERID"

	// maxEnvironment bounds what a compressed environment file may grow to.
	maxEnvironment = 1 << 20
)

var (
	// assignment is the beginning of a line that sets the variable.
	assignment = regexp.MustCompile(`^[ \t]*(export[ \t]+)?` + providerIDVariable + `[ \t]*=`)
	// unquoted are the values that need no quotes in an environment file.
	unquoted = regexp.MustCompile(`^[A-Za-z0-9_./:@%+,=-]+$`)
)

// resource is the content of a file in an Ignition config of any version.
type resource struct {
	Source       *string `json:"source"`
	Compression  *string `json:"compression"`
	Verification struct {
		Hash *string `json:"hash"`
	} `json:"verification"`
}

// content returns what the guest will read, in full. It returns false if that cannot be known from the config: the source is
// not a data: URL, or the guest would refuse it.
func (r resource) content() ([]byte, bool) {
	source := deref(r.Source)
	if source == "" {
		return nil, true
	}
	if !strings.HasPrefix(strings.ToLower(source), "data:") {
		return nil, false
	}
	decoded, err := dataurl.DecodeString(source)
	if err != nil {
		return nil, false
	}
	content := decoded.Data
	switch deref(r.Compression) {
	case "":
	case "gzip":
		reader, err := gzip.NewReader(bytes.NewReader(content))
		if err != nil {
			return nil, false
		}
		if content, err = io.ReadAll(io.LimitReader(reader, maxEnvironment+1)); err != nil || len(content) > maxEnvironment {
			return nil, false
		}
	default:
		return nil, false
	}
	return content, r.verify(content)
}

// verify checks the hash as Ignition does: after decompression.
func (r resource) verify(content []byte) bool {
	hash := deref(r.Verification.Hash)
	if hash == "" {
		return true
	}
	function, sum, _ := strings.Cut(hash, "-")
	switch function {
	case "sha512":
		digest := sha512.Sum512(content)
		return sum == hex.EncodeToString(digest[:])
	case "sha256":
		digest := sha256.Sum256(content)
		return sum == hex.EncodeToString(digest[:])
	}
	return false
}

// contents returns the content of all resources, one after the other, or false if one of them cannot be known.
func contents(resources []resource) ([]byte, bool) {
	var all []byte
	for _, r := range resources {
		content, ok := r.content()
		if !ok {
			return nil, false
		}
		all = append(all, content...)
	}
	return all, true
}

// setProviderID returns an environment file (systemd.exec(5), EnvironmentFile=) that sets the variable, in the place of its
// first assignment or at the end, and that is the same in everything else.
func setProviderID(environment []byte, providerID string) []byte {
	line := providerIDVariable + "=" + environmentQuote(providerID) + "\n"
	var out strings.Builder
	done, open := false, false
	for entry := range logicalLines(string(environment)) {
		if !assignment.MatchString(entry) {
			out.WriteString(entry)
			open = !strings.HasSuffix(entry, "\n") || continued(entry)
			continue
		}
		if !done {
			out.WriteString(line)
			done, open = true, false
		}
	}
	if !done {
		if entry := out.String(); open {
			out.WriteString("\n")
			// What follows a backslash belongs to the line before it.
			if continued(entry + "\n") {
				out.WriteString("\n")
			}
		}
		out.WriteString(line)
	}
	return []byte(out.String())
}

// logicalLines yields the lines of an environment file, each with its end and with the lines that a backslash continues it by.
func logicalLines(s string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		entry := ""
		for line := range strings.Lines(s) {
			entry += line
			if continued(entry) {
				continue
			}
			if !yield(entry) {
				return
			}
			entry = ""
		}
		if entry != "" {
			yield(entry)
		}
	}
}

// continued reports whether a line goes on in the next one: an odd number of backslashes before its end. A comment goes on
// too, as systemd reads it.
func continued(line string) bool {
	body, ended := strings.CutSuffix(line, "\n")
	backslashes := len(body) - len(strings.TrimRight(body, `\`))
	return ended && backslashes%2 == 1
}

// environmentQuote writes a value as systemd reads it in an environment file. It has no control characters.
func environmentQuote(s string) string {
	if unquoted.MatchString(s) {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`", `$`, `\$`).Replace(s) + `"`
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
