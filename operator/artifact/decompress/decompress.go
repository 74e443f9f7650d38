// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package decompress reads gzip, zstd and xz, which are told by their first bytes, in bounded memory.
package decompress

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/mikelolasagasti/xz"

	"github.com/caplv/caplv/operator/artifact/fault"
)

// Format is how a file is compressed.
type Format string

// The formats.
const (
	Raw  Format = "raw"
	Gzip Format = "gzip"
	Zstd Format = "zstd"
	XZ   Format = "xz"
)

// MaxWindow is the most memory in bytes that a compressed file may ask for, as its author chose it: that of xz -9. It is also more
// than what zstd -19 needs; zstd --ultra -22 and zstd --long need more.
const MaxWindow = 64 << 20

var magics = []struct {
	format Format
	magic  []byte
}{
	{Gzip, []byte{0x1f, 0x8b}},
	{Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd}},
	{XZ, []byte{0xfd, '7', 'z', 'X', 'Z', 0}},
}

// Sniff tells a format without consuming anything. An empty file is raw.
func Sniff(r *bufio.Reader) (Format, error) {
	head, err := r.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	for _, m := range magics {
		if bytes.HasPrefix(head, m.magic) {
			return m.format, nil
		}
	}
	return Raw, nil
}

// NewReader returns a reader of the decompressed bytes. What is wrong with the compressed ones comes as a *fault.Error with the reason Invalid or
// TooLarge; errors of r itself are passed on.
func NewReader(format Format, r *bufio.Reader) (io.ReadCloser, error) {
	source := &errorKeeper{r: r}
	keeper := bufio.NewReaderSize(source, 64<<10)
	var inner io.ReadCloser
	var err error
	switch format {
	case Gzip:
		inner, err = newGzip(keeper)
	case Zstd:
		var decoder *zstd.Decoder
		decoder, err = zstd.NewReader(keeper, zstd.WithDecoderMaxWindow(MaxWindow), zstd.WithDecoderLowmem(true), zstd.WithDecoderConcurrency(2))
		if err == nil {
			inner = decoder.IOReadCloser()
		}
	case XZ:
		var decoder *xz.Reader
		decoder, err = xz.NewReader(keeper, MaxWindow)
		inner = io.NopCloser(decoder)
	default:
		inner = io.NopCloser(r)
	}
	reader := &reader{format: format, inner: inner, source: source}
	if err != nil {
		return nil, reader.explain(err)
	}
	return reader, nil
}

// errorKeeper remembers the error of the compressed side, so that it is not taken for one of the data.
type errorKeeper struct {
	r   io.Reader
	err error
}

func (k *errorKeeper) Read(p []byte) (int, error) {
	n, err := k.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		k.err = err
	}
	return n, err
}

type reader struct {
	format Format
	inner  io.ReadCloser
	source *errorKeeper
}

func (r *reader) Close() error { return r.inner.Close() }

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.inner.Read(p)
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	return n, r.explain(err)
}

func (r *reader) explain(err error) error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	switch {
	case r.source.err != nil:
		return r.source.err
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, xz.ErrMemlimit), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return fault.New(fault.TooLarge, fault.Location, "decompressing the file takes more than %d MiB of memory; compress it with zstd -19 or xz -9 at most, without --long",
			MaxWindow>>20).Because(err)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), errors.Is(err, xz.ErrBuf):
		return fault.New(fault.Invalid, fault.Location, "the %s file ends too early; upload it again", r.format).Because(err)
	default:
		return fault.New(fault.Invalid, fault.Location, "the %s file is damaged (%s); upload it again", r.format, err).Because(err)
	}
}

var errTrailing = errors.New("something else follows its end")

// gzipReader reads all members of a file, and zeros behind the last one, as gzip does.
type gzipReader struct {
	r     *bufio.Reader
	inner *gzip.Reader
}

func newGzip(r *bufio.Reader) (*gzipReader, error) {
	inner, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	inner.Multistream(false)
	return &gzipReader{r, inner}, nil
}

func (g *gzipReader) Close() error { return g.inner.Close() }

func (g *gzipReader) Read(p []byte) (int, error) {
	n, err := g.inner.Read(p)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	if n > 0 {
		return n, nil
	}
	if err := g.next(); err != nil {
		return 0, err
	}
	return 0, nil
}

// next begins the next member, or returns io.EOF.
func (g *gzipReader) next() error {
	head, err := g.r.Peek(2)
	if len(head) == 2 && bytes.Equal(head, magics[0].magic) {
		if err := g.inner.Reset(g.r); err != nil {
			return err
		}
		g.inner.Multistream(false)
		return nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for {
		b, err := g.r.ReadByte()
		if err != nil {
			return err
		}
		if b != 0 {
			return errTrailing
		}
	}
}
