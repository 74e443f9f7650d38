// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// GuestImage builds the guests' images, unless they are cached, and returns the path of the small one, which has Ignition.
func GuestImage(ctx context.Context, repository string) (string, error) {
	return guestImage(ctx, repository, "guest.qcow2")
}

// CloudInitGuestImage builds the guests' images, unless they are cached, and returns the path of the one that has cloud-init
// and drivers for every bus. It needs 512 MiB of memory, and is slower than the small one.
func CloudInitGuestImage(ctx context.Context, repository string) (string, error) {
	return guestImage(ctx, repository, "guest-cloudinit.qcow2")
}

// NodeImage builds the image of the guest that becomes a node, unless it is cached, and returns its path. It wants 1 GiB of memory.
func NodeImage(ctx context.Context, repository string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(repository, "hack", "node-image.sh"))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("building the node's image: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func guestImage(ctx context.Context, repository, name string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(repository, "hack", "guest-image.sh"))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("building the guest's image: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), name), nil
}

// Report is what a guest says of itself on its serial console, line by line; test/bench/guest/init lists the lines.
type Report []string

// ReadReport picks the guest's report out of a serial console's log. It is complete when the log has Complete.
func ReadReport(log string) Report {
	var report Report
	for line := range strings.SplitSeq(log, "\n") {
		if _, rest, ok := strings.Cut(strings.TrimSpace(line), "CAPLV-GUEST "); ok {
			report = append(report, rest)
		}
	}
	return report
}

// Complete is the end of every report.
const Complete = "CAPLV-GUEST DONE"

// Of returns what follows a word in each line that begins with it and a space, or with it and an equals sign.
func (r Report) Of(word string) []string {
	var values []string
	for _, line := range r {
		if rest, ok := strings.CutPrefix(line, word); ok && rest != "" && (rest[0] == ' ' || rest[0] == '=') {
			values = append(values, rest[1:])
		}
	}
	return values
}

// GuestFile is a file that was written while the guest was configured.
type GuestFile struct {
	// Mode is octal, such as 644.
	Mode string
	// Content is empty for files of more than 4096 bytes, whose SHA256 in hexadecimal digits tells what they hold.
	Content string
	SHA256  string
}

// Files returns the files that were written while the guest was configured, by path.
func (r Report) Files() (map[string]GuestFile, error) {
	files := map[string]GuestFile{}
	for _, line := range r.Of("FILE") {
		members := map[string]string{}
		for word := range strings.FieldsSeq(line) {
			key, value, _ := strings.Cut(word, "=")
			members[key] = value
		}
		content, err := base64.StdEncoding.DecodeString(members["base64"])
		if err != nil {
			return nil, fmt.Errorf("the guest's report of %s: %w", members["path"], err)
		}
		files[members["path"]] = GuestFile{Mode: members["mode"], Content: string(content), SHA256: members["sha256"]}
	}
	return files, nil
}
