// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hostctl_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/hostconn"
	"github.com/caplv/caplv/operator/hostctl"
)

func bootFile(content []byte) hostctl.BootFile {
	sum := sha256.Sum256(content)
	return hostctl.BootFile{Dir: "/var/lib/caplv/boot", SHA256: hex.EncodeToString(sum[:]), Name: hostctl.KernelFile}
}

func TestTheHelperAndItsClientAgreeOnBootFiles(t *testing.T) {
	g := NewWithT(t)
	n := newNamespace(t)
	c := hostctl.New(n)
	ctx := t.Context()
	g.Expect(n.run(ctx, nil, "mount", "-n", "-t", "tmpfs", "-o", "mode=755", "none", "/var/lib")).To(HaveField("ExitCode", 0))
	content := bytes.Repeat([]byte("kernel\n\x00"), 1<<17)
	f := bootFile(content)

	g.Expect(c.HasBootFile(ctx, f)).To(BeFalse())
	g.Expect(c.StageBootFile(ctx, f, int64(len(content)), bytes.NewReader(content))).To(BeTrue())
	g.Expect(c.HasBootFile(ctx, f)).To(BeTrue())
	g.Expect(c.StageBootFile(ctx, f, int64(len(content)), bytes.NewReader(content))).To(BeFalse(), "a second request finds it there")
	read, err := n.run(ctx, nil, "cat", f.Path())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(bytes.Equal(read.Stdout, content)).To(BeTrue())

	initramfs := f
	initramfs.Name = hostctl.InitramfsFile
	g.Expect(c.HasBootFile(ctx, initramfs)).To(BeFalse())
	_, err = c.StageBootFile(ctx, initramfs, int64(len(content)), bytes.NewReader(bytes.ToUpper(content)))
	g.Expect(hostctl.CodeOf(err)).To(Equal(hostctl.CodeDigestMismatch), "%v", err)
	_, err = c.StageBootFile(ctx, initramfs, int64(len(content)), bytes.NewReader(content[1:]))
	g.Expect(hostctl.CodeOf(err)).To(Equal(hostctl.CodeBadRequest), "%v", err)
	elsewhere := f
	elsewhere.Dir = "/var/lib/cron"
	_, err = c.StageBootFile(ctx, elsewhere, int64(len(content)), bytes.NewReader(content))
	g.Expect(hostctl.CodeOf(err)).To(Equal(hostctl.CodeNotOurs), "%v", err)

	g.Expect(c.RemoveBootFiles(ctx, f.Dir, f.SHA256)).To(Succeed())
	g.Expect(c.HasBootFile(ctx, f)).To(BeFalse())
	g.Expect(c.RemoveBootFiles(ctx, f.Dir, f.SHA256)).To(Succeed(), "it is gone already")
	g.Expect(n.run(ctx, nil, "ls", "-A", "/var/lib")).To(HaveField("Stdout", BeEmpty()))
}

func TestBootFilesThatTheHelperWouldRefuseAreNeverSent(t *testing.T) {
	good := bootFile([]byte("x"))
	for _, row := range []struct {
		name string
		file hostctl.BootFile
		size int64
	}{
		{"a relative directory", hostctl.BootFile{Dir: "boot", SHA256: good.SHA256, Name: good.Name}, 1},
		{"a directory with ..", hostctl.BootFile{Dir: "/var/lib/caplv/../x", SHA256: good.SHA256, Name: good.Name}, 1},
		{"a directory with a line break", hostctl.BootFile{Dir: "/var/lib/caplv\nx", SHA256: good.SHA256, Name: good.Name}, 1},
		{"a long directory", hostctl.BootFile{Dir: "/" + strings.Repeat("a", hostctl.MaxBootDir), SHA256: good.SHA256, Name: good.Name}, 1},
		{"a digest that is none", hostctl.BootFile{Dir: good.Dir, SHA256: strings.ToUpper(good.SHA256), Name: good.Name}, 1},
		{"another name", hostctl.BootFile{Dir: good.Dir, SHA256: good.SHA256, Name: "grub.cfg"}, 1},
		{"nothing", good, 0},
		{"too much", good, hostctl.MaxBootFile + 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			r := &recorder{}
			_, err := hostctl.New(r).StageBootFile(t.Context(), row.file, row.size, strings.NewReader("x"))
			g.Expect(hostctl.CodeOf(err)).To(Equal(hostctl.CodeBadValue))
			g.Expect(r.command).To(BeEmpty())
		})
	}
	g := NewWithT(t)
	r := &recorder{}
	_, err := hostctl.New(r).HasBootFile(t.Context(), hostctl.BootFile{})
	g.Expect(hostctl.CodeOf(err)).To(Equal(hostctl.CodeBadValue))
	g.Expect(hostctl.CodeOf(hostctl.New(r).RemoveBootFiles(t.Context(), good.Dir, ".."))).To(Equal(hostctl.CodeBadValue))
	g.Expect(r.command).To(BeEmpty())
}

func TestAnOlderHelperIsToldFromABadRequest(t *testing.T) {
	g := NewWithT(t)
	r := &recorder{result: hostconn.Result{ExitCode: 2, Stderr: []byte("caplv-hostctl: bad-request: unknown verb\n")}}
	_, err := hostctl.New(r).HasBootFile(t.Context(), bootFile([]byte("x")))
	g.Expect(hostctl.CodeOf(err)).To(Equal(hostctl.CodeHelperOutdated))
	g.Expect(err).To(MatchError(ContainSubstring("onboard_host.yml")))
	r.result.Stderr = []byte("caplv-hostctl: bad-request: a line is not KEY=VALUE\n")
	_, err = hostctl.New(r).HasBootFile(t.Context(), bootFile([]byte("x")))
	g.Expect(hostctl.CodeOf(err)).To(Equal(hostctl.CodeBadRequest))
}

func TestAFileThatCannotBeReadEndsTheRequest(t *testing.T) {
	g := NewWithT(t)
	broken := errors.New("disk error")
	_, err := hostctl.New(&recorder{}).StageBootFile(t.Context(), bootFile([]byte("x")), 10, io.MultiReader(strings.NewReader("x"), failing{broken}))
	g.Expect(err).To(MatchError(broken))
}

// failing is a reader that only fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
