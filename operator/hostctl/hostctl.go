// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostctl is the client of caplv-hostctl, the helper that does on a host what needs root: a directory, or a
// tmpfs, for each machine below /run/caplv. It knows nothing of Kubernetes.
//
// The helper (roles/host_helper/files/caplv-hostctl) takes no arguments; the request, including the machine's bootstrap data,
// goes to its standard input.
package hostctl

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/caplv/caplv/operator/hostconn"
)

// command is all that the account may do with sudo.
const command = "exec sudo -n /usr/libexec/caplv/caplv-hostctl"

const protocol = "caplv-hostctl/1"

// Directory is the directory of the machine called name.
func Directory(name string) string { return "/run/caplv/" + name }

// SerialLog is where the system daemon logs the serial console of the domain called name.
func SerialLog(name string) string { return "/var/log/libvirt/qemu/" + name + "-serial.log" }

// Code is why the helper failed.
type Code string

// The codes. Those in lower case are the helper's own.
const (
	CodeBadRequest     Code = "bad-request"
	CodeBadValue       Code = "bad-value"
	CodeDigestMismatch Code = "digest-mismatch"
	CodeBusy           Code = "busy"
	CodeNotOurs        Code = "not-ours"
	CodeNoSpace        Code = "no-space"
	CodeIO             Code = "io"
	// CodeHelperMissing says that the helper, or sudo, is not installed.
	CodeHelperMissing Code = "HelperMissing"
	// CodeHelperNotPermitted says that sudo does not let the account run the helper.
	CodeHelperNotPermitted Code = "HelperNotPermitted"
	// CodeUnknown says that the helper failed without a code.
	CodeUnknown Code = "Unknown"
)

// Error is a request that failed on the host.
type Error struct {
	Code    Code
	Message string
}

func (e *Error) Error() string { return "caplv-hostctl: " + e.Message }

// Transport runs commands on a host; *hostconn.Conn is one.
type Transport interface {
	Exec(ctx context.Context, command string, stdin io.Reader) (hostconn.Result, error)
}

// Client asks one host's helper. Errors are of type *Error or come from the transport.
type Client struct{ transport Transport }

// New returns a Client over transport.
func New(transport Transport) *Client { return &Client{transport: transport} }

// Probe checks that the helper is there, may be run, and speaks this protocol.
func (c *Client) Probe(ctx context.Context) error {
	out, err := c.ask(ctx, "probe", nil, nil)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(out, "version=1\n") {
		return &Error{Code: CodeUnknown, Message: fmt.Sprintf("the helper answered %q to a probe; it is not of this version", first(out))}
	}
	return nil
}

// StageRequest asks for a machine's directory.
type StageRequest struct {
	// Name is the domain's name.
	Name string
	// Ephemeral mounts a tmpfs on the directory. Size limits it: "80%", "16G", or empty for the kernel's half of memory.
	Ephemeral bool
	Size      string
	// File receives Data, readable for root alone. Empty for none.
	File string
	Data []byte
}

// These mirror what the helper accepts, so that a mistake is found before anything is sent.
var (
	namePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	sizePattern = regexp.MustCompile(`^(([1-9][0-9]?|100)%|[1-9][0-9]{0,8}[kKmMgG])?$`)
	filePattern = regexp.MustCompile(`^([a-z0-9][a-z0-9.-]{0,63})?$`)
)

// Stage makes a machine's directory as the request says. It is idempotent, and returns whether anything changed.
func (c *Client) Stage(ctx context.Context, r StageRequest) (bool, error) {
	switch {
	case !namePattern.MatchString(r.Name):
		return false, &Error{Code: CodeBadValue, Message: fmt.Sprintf("%q is not the name of a domain", r.Name)}
	case !sizePattern.MatchString(r.Size):
		return false, &Error{Code: CodeBadValue, Message: fmt.Sprintf("%q is not the size of a tmpfs", r.Size)}
	case !filePattern.MatchString(r.File):
		return false, &Error{Code: CodeBadValue, Message: fmt.Sprintf("%q is not the name of a file", r.File)}
	}
	pairs := [][2]string{{"name", r.Name}, {"ephemeral", "no"}}
	if r.Ephemeral {
		pairs[1][1] = "yes"
		pairs = append(pairs, [2]string{"size", r.Size})
	}
	var payload []byte
	if r.File != "" {
		payload = r.Data
		digest := sha256.Sum256(payload)
		pairs = append(pairs, [2]string{"file", r.File}, [2]string{"bytes", fmt.Sprint(len(payload))}, [2]string{"sha256", hex.EncodeToString(digest[:])})
	}
	out, err := c.ask(ctx, "stage", pairs, payload)
	return strings.TrimSpace(out) == "staged=created", err
}

// Remove removes a machine's directory with everything in it. One that does not exist is no error.
func (c *Client) Remove(ctx context.Context, name string) error {
	if !namePattern.MatchString(name) {
		return &Error{Code: CodeBadValue, Message: fmt.Sprintf("%q is not the name of a domain", name)}
	}
	_, err := c.ask(ctx, "remove", [][2]string{{"name", name}}, nil)
	return err
}

func (c *Client) ask(ctx context.Context, verb string, pairs [][2]string, payload []byte) (string, error) {
	var request bytes.Buffer
	fmt.Fprintf(&request, "%s\n%s\n", protocol, verb)
	for _, p := range pairs {
		fmt.Fprintf(&request, "%s=%s\n", p[0], p[1])
	}
	request.WriteByte('\n')
	request.Write(payload)
	result, err := c.transport.Exec(ctx, command, &request)
	if err != nil {
		return "", err
	}
	if result.ExitCode == 0 {
		return string(result.Stdout), nil
	}
	return "", failure(result)
}

var helperError = regexp.MustCompile(`(?m)^caplv-hostctl: ([a-z-]+): (.*)$`)

// failure tells what the helper said from what sudo or the shell said in its stead.
func failure(result hostconn.Result) error {
	said := string(result.Stderr)
	if m := helperError.FindStringSubmatch(said); m != nil {
		return &Error{Code: Code(m[1]), Message: m[1] + ": " + m[2]}
	}
	const wayOut = "; prepare the host again (hack/prepare-test-host.sh)"
	switch {
	case result.ExitCode == 127 || strings.Contains(said, "command not found") || strings.Contains(said, "not found in"):
		return &Error{Code: CodeHelperMissing, Message: "it is not installed on the host" + wayOut}
	case strings.HasPrefix(said, "sudo:") || strings.Contains(said, "is not allowed to"):
		return &Error{Code: CodeHelperNotPermitted, Message: "sudo does not let the account run it (" + first(said) + ")" + wayOut}
	}
	return &Error{Code: CodeUnknown, Message: fmt.Sprintf("it ended with status %d: %s", result.ExitCode, first(said))}
}

// CodeOf returns the code of an error of this package, and "" for any other.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// first is the first line of a text, cut to a sensible length.
func first(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line[:min(len(line), 200)]
}
