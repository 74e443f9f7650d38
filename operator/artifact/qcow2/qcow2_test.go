// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package qcow2_test

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/artifact/fault"
	"github.com/caplv/caplv/operator/artifact/qcow2"
)

const fileSize = 196624

// image is the header of an image of 1 GiB, as qemu-img writes it.
func image() []byte {
	h := make([]byte, 104)
	copy(h, "QFI\xfb")
	binary.BigEndian.PutUint32(h[4:], 3)
	binary.BigEndian.PutUint32(h[20:], 16)
	binary.BigEndian.PutUint64(h[24:], 1<<30)
	binary.BigEndian.PutUint32(h[36:], 2)
	binary.BigEndian.PutUint64(h[40:], 3<<16)
	binary.BigEndian.PutUint64(h[48:], 1<<16)
	binary.BigEndian.PutUint32(h[56:], 1)
	binary.BigEndian.PutUint32(h[100:], 104)
	return h
}

func TestJudge(t *testing.T) {
	for _, row := range []struct {
		name    string
		change  func(h []byte) []byte
		refusal string
	}{
		{"an image by itself", func(h []byte) []byte { return h }, ""},
		{"a dirty image", func(h []byte) []byte { h[79] = 1; return h }, ""},
		{"no image", func([]byte) []byte { return []byte("<html>") }, "not a qcow2 image"},
		{"nothing", func([]byte) []byte { return nil }, "not a qcow2 image"},
		{"a short header", func(h []byte) []byte { return h[:50] }, "cut short"},
		{"a short header of version 3", func(h []byte) []byte { return h[:80] }, "cut short"},
		{"an unknown version", func(h []byte) []byte { h[7] = 4; return h }, "only 2 and 3"},
		{"a backing file", func(h []byte) []byte { h[15] = 104; return h }, "backing file"},
		{"encryption", func(h []byte) []byte { h[35] = 1; return h }, "encrypted"},
		{"an external data file", func(h []byte) []byte { h[79] = 4; return h }, "external data file"},
		{"corruption", func(h []byte) []byte { h[79] = 2; return h }, "corrupt"},
		{"a feature that is not known", func(h []byte) []byte { h[79] = 32; return h }, "not known here"},
		{"clusters that are too large", func(h []byte) []byte { h[23] = 30; return h }, "cluster size"},
		{"an L1 table outside", func(h []byte) []byte { h[40] = 0xff; return h }, "L1 table"},
		{"a refcount table that wraps around", func(h []byte) []byte { copy(h[48:56], "\xff\xff\xff\xff\xff\xff\xff\xff"); return h }, "refcount table"},
		{"a snapshot table outside", func(h []byte) []byte { h[63], h[64] = 1, 1; return h }, "snapshot table"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			size, err := qcow2.Judge(row.change(image()), fileSize)
			if row.refusal == "" {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(size).To(BeEquivalentTo(1 << 30))
				return
			}
			g.Expect(fault.ReasonOf(err)).To(Equal(fault.ImageInvalid))
			g.Expect(err).To(MatchError(ContainSubstring(row.refusal)))
		})
	}
}

func TestImagesOfTheRealTool(t *testing.T) {
	g := NewWithT(t)
	tool, err := exec.LookPath("qemu-img")
	g.Expect(err).NotTo(HaveOccurred(), "this test needs qemu-img: install qemu-utils")
	dir := t.TempDir()
	base, top := filepath.Join(dir, "base"), filepath.Join(dir, "top")
	for _, compat := range []string{"0.10", "1.1"} {
		g.Expect(exec.CommandContext(t.Context(), tool, "create", "-q", "-f", "qcow2", "-o", "compat="+compat, base, "1G").Run()).To(Succeed())
		g.Expect(qcow2.VirtualSize(base)).To(BeEquivalentTo(1 << 30))
	}
	g.Expect(exec.CommandContext(t.Context(), tool, "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base, top).Run()).To(Succeed())
	_, err = qcow2.VirtualSize(top)
	g.Expect(err).To(MatchError(ContainSubstring("backing file")))
	link := filepath.Join(dir, "link")
	g.Expect(os.Symlink(base, link)).To(Succeed())
	_, err = qcow2.VirtualSize(link)
	g.Expect(err).To(HaveOccurred())
}

func FuzzJudge(f *testing.F) {
	f.Add(image(), uint64(fileSize))
	f.Fuzz(func(t *testing.T, beginning []byte, size uint64) {
		if _, err := qcow2.Judge(beginning, size); err != nil && fault.ReasonOf(err) != fault.ImageInvalid {
			t.Error(err)
		}
	})
}
