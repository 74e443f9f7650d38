// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package decompress_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	. "github.com/onsi/gomega"
	"github.com/ulikunitz/xz"

	"github.com/caplv/caplv/operator/artifact/decompress"
	"github.com/caplv/caplv/operator/artifact/fault"
)

const text = "a text that is short"

func written(t testing.TB, w io.WriteCloser, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func compressed(t testing.TB) map[decompress.Format][]byte {
	t.Helper()
	var g, z, x bytes.Buffer
	written(t, gzip.NewWriter(&g), nil)
	zw, err := zstd.NewWriter(&z)
	written(t, zw, err)
	xw, err := xz.NewWriter(&x)
	written(t, xw, err)
	return map[decompress.Format][]byte{decompress.Raw: []byte(text), decompress.Gzip: g.Bytes(), decompress.Zstd: z.Bytes(), decompress.XZ: x.Bytes()}
}

// read sniffs and decompresses, up to a limit.
func read(p []byte) (decompress.Format, []byte, error) {
	r := bufio.NewReader(bytes.NewReader(p))
	format, err := decompress.Sniff(r)
	if err != nil {
		return "", nil, err
	}
	d, err := decompress.NewReader(format, r)
	if err != nil {
		return format, nil, err
	}
	defer d.Close()
	out, err := io.ReadAll(io.LimitReader(d, 1<<20))
	return format, out, err
}

func TestFormatsAreToldByTheirFirstBytes(t *testing.T) {
	g := NewWithT(t)
	for want, p := range compressed(t) {
		format, out, err := read(p)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(format).To(Equal(want))
		g.Expect(string(out)).To(Equal(text))
	}
	format, out, err := read(nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(format).To(Equal(decompress.Raw))
	g.Expect(out).To(BeEmpty())
}

func TestMembersAreJoinedAndZerosBehindThemAreLeftOut(t *testing.T) {
	g := NewWithT(t)
	for format, p := range compressed(t) {
		if format == decompress.Raw {
			continue
		}
		_, out, err := read(append(bytes.Clone(p), p...))
		g.Expect(err).NotTo(HaveOccurred(), string(format))
		g.Expect(string(out)).To(Equal(text + text))
	}
	_, out, err := read(append(compressed(t)[decompress.Gzip], make([]byte, 100_000)...))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(out)).To(Equal(text))
}

func TestWhatIsCutShortOrDamagedOrFollowedIsRefused(t *testing.T) {
	for format, p := range compressed(t) {
		if format == decompress.Raw {
			continue
		}
		damaged := bytes.Clone(p)
		for i := len(damaged) - 12; i < len(damaged)-2; i++ {
			damaged[i] ^= 0x55
		}
		for name, broken := range map[string][]byte{
			"cut short": p[:len(p)-3], "only magic": p[:6], "damaged": damaged, "followed by text": append(bytes.Clone(p), "something"...),
		} {
			t.Run(string(format)+" "+name, func(t *testing.T) {
				_, _, err := read(broken)
				NewWithT(t).Expect(fault.ReasonOf(err)).To(Equal(fault.Invalid), "%v", err)
			})
		}
	}
}

func TestAFileThatWantsTooMuchMemoryIsRefused(t *testing.T) {
	g := NewWithT(t)
	// The headers that "zstd --long=31" and "xz --lzma2=dict=1536MiB" write.
	block := []byte{0x02, 0x00, 0x21, 0x01, 0x27, 0x00, 0x00, 0x00}
	huge := append([]byte("\xfd7zXZ\x00"), withCRC([]byte{0x00, 0x04})...)
	huge = append(append(huge, withCRC(block)...), make([]byte, 100)...)
	for format, p := range map[decompress.Format][]byte{decompress.Zstd: {0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0x00, 0x00}, decompress.XZ: huge} {
		_, _, err := read(p)
		g.Expect(fault.ReasonOf(err)).To(Equal(fault.TooLarge), "%s: %v", format, err)
	}
}

// withCRC ends bytes with their checksum, as xz does.
func withCRC(p []byte) []byte {
	return binary.LittleEndian.AppendUint32(bytes.Clone(p), crc32.ChecksumIEEE(p))
}

func TestErrorsOfTheCompressedSideArePassedOn(t *testing.T) {
	g := NewWithT(t)
	broken := errors.New("broken connection")
	for format, p := range compressed(t) {
		r := bufio.NewReader(io.MultiReader(bytes.NewReader(p[:len(p)-4]), failing{broken}))
		d, err := decompress.NewReader(format, r)
		if err == nil {
			_, err = io.ReadAll(d)
			g.Expect(d.Close()).To(Succeed())
		}
		g.Expect(err).To(MatchError(broken), string(format))
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func FuzzNewReader(f *testing.F) {
	for _, p := range compressed(f) {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		format, out, err := read(p)
		if err != nil && fault.ReasonOf(err) == "" {
			t.Errorf("an error without a reason: %v", err)
		}
		if format == decompress.Raw && !bytes.Equal(out, p) {
			t.Error("a raw file was changed")
		}
	})
}
