// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostctl

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// The names of the files that machines boot directly.
const (
	KernelFile    = "vmlinuz"
	InitramfsFile = "initramfs.img"
)

// BootFile is a file that machines boot directly. The helper keeps it under the digest of its content.
type BootFile struct {
	// Dir is an absolute path: below /var/lib/caplv, or where root has put a file .caplv-boot.
	Dir string
	// SHA256 is the digest of the content, as 64 lower-case hexadecimal digits.
	SHA256 string
	// Name is KernelFile or InitramfsFile.
	Name string
}

// Path is where the file is on the host.
func (f BootFile) Path() string { return f.Dir + "/" + f.SHA256 + "/" + f.Name }

// These mirror what the helper accepts.
var (
	bootDirPattern = regexp.MustCompile(`^(/[A-Za-z0-9_][A-Za-z0-9._-]*)+$`)
	digestPattern  = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

const (
	// MaxBootDir is the length of the longest Dir, in bytes.
	MaxBootDir = 200
	// MaxBootFile is the size of the largest file, in bytes.
	MaxBootFile = 2 << 30
)

// ValidBootDir says whether the helper takes a path for a BootFile's Dir. Whether root allows it there is another question.
func ValidBootDir(path string) bool {
	return len(path) <= MaxBootDir && bootDirPattern.MatchString(path)
}

func (f BootFile) validate() error {
	switch {
	case !ValidBootDir(f.Dir):
		return &Error{Code: CodeBadValue, Message: fmt.Sprintf("%q is not a directory for boot artifacts", f.Dir)}
	case !digestPattern.MatchString(f.SHA256):
		return &Error{Code: CodeBadValue, Message: fmt.Sprintf("%q is not a digest", f.SHA256)}
	case f.Name != KernelFile && f.Name != InitramfsFile:
		return &Error{Code: CodeBadValue, Message: fmt.Sprintf("%q is neither %s nor %s", f.Name, KernelFile, InitramfsFile)}
	}
	return nil
}

// HasBootFile says whether the file is on the host. The helper reads all of it, and compares its digest.
func (c *Client) HasBootFile(ctx context.Context, f BootFile) (bool, error) {
	out, err := c.askBoot(ctx, "check-boot", f, nil, nil)
	if err != nil {
		return false, err
	}
	return choose(out, "boot=present", "boot=absent")
}

// StageBootFile puts the file on the host, unless it is there: content has size bytes, which are streamed. It appears when it is complete and has its
// digest. It returns whether the file was missing, and CodeBusy while another one sends the same file.
func (c *Client) StageBootFile(ctx context.Context, f BootFile, size int64, content io.Reader) (bool, error) {
	if size < 1 || size > MaxBootFile {
		return false, &Error{Code: CodeBadValue, Message: fmt.Sprintf("%d bytes cannot be staged; it takes 1 to %d", size, int64(MaxBootFile))}
	}
	out, err := c.askBoot(ctx, "stage-boot", f, [][2]string{{"bytes", fmt.Sprint(size)}}, io.LimitReader(content, size))
	if err != nil {
		return false, err
	}
	return choose(out, "staged=created", "staged=unchanged")
}

// RemoveBootFiles removes the files with a digest below a directory, whatever their names are. None is no error.
func (c *Client) RemoveBootFiles(ctx context.Context, dir, sha256 string) error {
	f := BootFile{Dir: dir, SHA256: sha256, Name: KernelFile}
	if err := f.validate(); err != nil {
		return err
	}
	_, err := c.ask(ctx, "remove-boot", [][2]string{{"path", dir}, {"sha256", sha256}}, nil)
	return withoutBoot(err)
}

func (c *Client) askBoot(ctx context.Context, verb string, f BootFile, further [][2]string, content io.Reader) (string, error) {
	if err := f.validate(); err != nil {
		return "", err
	}
	pairs := append([][2]string{{"path", f.Dir}, {"file", f.Name}, {"sha256", f.SHA256}}, further...)
	out, err := c.ask(ctx, verb, pairs, content)
	return out, withoutBoot(err)
}

// withoutBoot tells of a helper that was installed before there were boot artifacts.
func withoutBoot(err error) error {
	if CodeOf(err) == CodeBadRequest && strings.Contains(err.Error(), "unknown verb") {
		return &Error{Code: CodeHelperOutdated, Message: "the host's helper knows no boot artifacts; it is of an older version" + wayOut}
	}
	return err
}
