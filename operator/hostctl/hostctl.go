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
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/caplv/caplv/operator/hostconn"
	"github.com/caplv/caplv/operator/setup"
)

// command is all that the account may do with sudo, whose own words are asked for in English.
const command = "exec env LC_ALL=C sudo -n /usr/libexec/caplv/caplv-hostctl"

// probeCommand prints what the roles have recorded on the host, as a line, before it runs the helper: one round trip for both.
// The file is foreign text, and encoded no part of it can be taken for an answer of the helper.
var probeCommand = fmt.Sprintf("exec sh -c 'printf %%s %s; head -c %d %s 2>/dev/null | base64 -w 0; echo; %s'", factsPrefix, setup.MaxSize, setup.File, command)

const factsPrefix = "facts="

const protocol = "caplv-hostctl/1"

// Directory is the directory of the machine called name.
func Directory(name string) string { return "/run/caplv/" + name }

// SerialLog is where the system daemon logs the serial console of the domain called name.
func SerialLog(name string) string { return "/var/log/libvirt/qemu/" + name + "-serial.log" }

// SessionSerialLog is where a session daemon logs the serial console of the domain called name: it may not write elsewhere, and
// its log daemon keeps a few parts of 2 MiB each.
func SessionSerialLog(name string) string { return Directory(name) + "/serial.log" }

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
	// CodeHelperOutdated says that the helper is of a version that speaks another protocol.
	CodeHelperOutdated Code = "HelperOutdated"
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

// Probe checks that the helper is there, may be run, and speaks this protocol. In the same round trip it reads what the roles have
// recorded about the host, which it returns whether or not the helper is in order.
func (c *Client) Probe(ctx context.Context) (setup.Facts, error) {
	result, err := c.transport.Exec(ctx, probeCommand, strings.NewReader(protocol+"\nprobe\n\n"))
	if err != nil {
		return setup.Facts{}, err
	}
	lines := strings.Split(string(result.Stdout), "\n")
	facts := recorded(lines)
	if result.ExitCode != 0 {
		return facts, failure(result)
	}
	if !slices.Contains(lines, "version=1") {
		said := slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, factsPrefix) })
		return facts, &Error{Code: CodeHelperOutdated, Message: fmt.Sprintf("the helper answered %q to a probe; it is not of this version%s",
			first(strings.Join(said, "\n")), wayOut)}
	}
	return facts, nil
}

// recorded finds the line with the facts in an answer to a probe.
func recorded(lines []string) setup.Facts {
	for _, line := range lines {
		if encoded, ok := strings.CutPrefix(line, factsPrefix); ok {
			content, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil {
				return setup.Facts{}
			}
			return setup.Parse(content)
		}
	}
	return setup.Facts{}
}

// Owner is whose a machine's directory is.
type Owner string

const (
	// OwnerRoot is for the system daemon, which gives its QEMU what it needs. It is what an empty Owner means.
	OwnerRoot Owner = "root"
	// OwnerCaller is for the session daemon: the SSH user, as whom QEMU runs there.
	OwnerCaller Owner = "caller"
)

// StageRequest asks for a machine's directory.
type StageRequest struct {
	// Name is the domain's name.
	Name string
	// Ephemeral mounts a tmpfs on the directory. Size limits it: "80%", "16G", or empty for the kernel's half of memory.
	Ephemeral bool
	Size      string
	// Owner is whose the directory and the file are.
	Owner Owner
	// File receives Data, readable for the owner alone. Empty for none.
	File string
	Data []byte
}

// These mirror what the helper accepts, so that a mistake is found before anything is sent.
var (
	namePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	sizePattern = regexp.MustCompile(`^([1-9][0-9]{0,17}|[1-9][0-9]{0,8}[kKmMgG]|([1-9][0-9]?|100)%)?$`)
	filePattern = regexp.MustCompile(`^([a-z0-9][a-z0-9.-]{0,63})?$`)
)

// maxData is the most that the helper takes, in bytes.
const maxData = 64 << 20

// Stage makes a machine's directory as the request says. It is idempotent, and returns whether anything changed.
func (c *Client) Stage(ctx context.Context, r StageRequest) (bool, error) {
	switch {
	case !namePattern.MatchString(r.Name):
		return false, &Error{Code: CodeBadValue, Message: fmt.Sprintf("%q is not the name of a domain", r.Name)}
	case !sizePattern.MatchString(r.Size):
		return false, &Error{Code: CodeBadValue, Message: fmt.Sprintf("%q is not the size of a tmpfs", r.Size)}
	case r.Owner != "" && r.Owner != OwnerRoot && r.Owner != OwnerCaller:
		return false, &Error{Code: CodeBadValue, Message: fmt.Sprintf("%q is not an owner; it is %s or %s", r.Owner, OwnerRoot, OwnerCaller)}
	case !filePattern.MatchString(r.File):
		return false, &Error{Code: CodeBadValue, Message: fmt.Sprintf("%q is not the name of a file", r.File)}
	case r.File == "" && len(r.Data) > 0:
		return false, &Error{Code: CodeBadValue, Message: "there are data and no file to put them into"}
	case len(r.Data) > maxData:
		return false, &Error{Code: CodeBadValue, Message: fmt.Sprintf("%d bytes are more than the %d that can be staged", len(r.Data), maxData)}
	}
	pairs := [][2]string{{"name", r.Name}, {"ephemeral", "no"}}
	if r.Ephemeral {
		pairs[1][1] = "yes"
		pairs = append(pairs, [2]string{"size", r.Size})
	}
	if r.Owner != "" {
		pairs = append(pairs, [2]string{"owner", string(r.Owner)})
	}
	var payload io.Reader
	if r.File != "" {
		payload = bytes.NewReader(r.Data)
		digest := sha256.Sum256(r.Data)
		pairs = append(pairs, [2]string{"file", r.File}, [2]string{"bytes", fmt.Sprint(len(r.Data))}, [2]string{"sha256", hex.EncodeToString(digest[:])})
	}
	out, err := c.ask(ctx, "stage", pairs, payload)
	if err != nil {
		return false, err
	}
	return choose(out, "staged=created", "staged=unchanged")
}

// choose returns whether an answer has the line yes, and an error when it has neither yes nor no.
func choose(answer, yes, no string) (bool, error) {
	for line := range strings.SplitSeq(answer, "\n") {
		switch line {
		case yes:
			return true, nil
		case no:
			return false, nil
		}
	}
	return false, &Error{Code: CodeUnknown, Message: fmt.Sprintf("the helper ended well and answered %q", first(answer))}
}

// Remove removes a machine's directory with everything in it. One that does not exist is no error.
func (c *Client) Remove(ctx context.Context, name string) error {
	if !namePattern.MatchString(name) {
		return &Error{Code: CodeBadValue, Message: fmt.Sprintf("%q is not the name of a domain", name)}
	}
	_, err := c.ask(ctx, "remove", [][2]string{{"name", name}}, nil)
	return err
}

func (c *Client) ask(ctx context.Context, verb string, pairs [][2]string, payload io.Reader) (string, error) {
	var request bytes.Buffer
	fmt.Fprintf(&request, "%s\n%s\n", protocol, verb)
	for _, p := range pairs {
		fmt.Fprintf(&request, "%s=%s\n", p[0], p[1])
	}
	request.WriteByte('\n')
	var input io.Reader = &request
	if payload != nil {
		input = io.MultiReader(&request, payload)
	}
	result, err := c.transport.Exec(ctx, command, input)
	if err != nil {
		return "", err
	}
	if result.ExitCode == 0 {
		return string(result.Stdout), nil
	}
	return "", failure(result)
}

// wayOut is what to do about a host without a working helper.
const wayOut = "; run playbooks/onboard_host.yml for the host"

var helperError = regexp.MustCompile(`(?m)^caplv-hostctl: ([a-z-]{1,32}): (.*)$`)

// failure tells what the helper said from what sudo or the shell said in its stead.
func failure(result hostconn.Result) error {
	said := string(result.Stderr)
	if m := helperError.FindStringSubmatch(said); m != nil {
		return &Error{Code: Code(m[1]), Message: m[1] + ": " + first(m[2])}
	}
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

// first is the first line of a text, cut to a sensible length, and fit for a condition.
func first(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return strings.ToValidUTF8(line[:min(len(line), 300)], "?")
}
