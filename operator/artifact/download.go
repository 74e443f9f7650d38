// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"

	"github.com/klauspost/readahead"

	"github.com/caplv/caplv/operator/artifact/decompress"
	"github.com/caplv/caplv/operator/artifact/fault"
	"github.com/caplv/caplv/operator/artifact/fetch"
	"github.com/caplv/caplv/operator/artifact/store"
)

// maxReplacements is how many times a fetch begins again because the file was replaced meanwhile.
const maxReplacements = 3

// Buffers between the stages of a fetch, which run side by side: transfer, store, decompress, store.
const (
	bufferCount = 4
	bufferSize  = 256 << 10
)

// fetch transfers a file into the cache and pins it. STREAM is an answer with the whole file, or nil.
func (c *Cache) fetch(ctx context.Context, s Source, stream *fetch.Stream, follow func(done, total int64)) (result, error) {
	partial, err := c.store.Begin(s.Key())
	if err != nil {
		if stream != nil {
			stream.Close()
		}
		return result{}, err
	}
	defer c.measure()
	for try := 0; ; try++ {
		r, err := c.tryFetch(ctx, s, stream, partial, follow)
		stream = nil
		if err == nil {
			return r, nil
		}
		again := errors.Is(err, fetch.ErrReplaced) || errors.Is(err, fetch.ErrNotResumable) || errors.Is(err, errSpoiled)
		if again && try < maxReplacements {
			if err = partial.Reset(); err == nil {
				continue
			}
		}
		if keepsBytes(err) {
			partial.Close()
		} else {
			partial.Discard()
		}
		return result{}, err
	}
}

// keepsBytes says whether the bytes that came before a failure are of use for the next try.
func keepsBytes(err error) bool {
	switch fault.ReasonOf(err) {
	case fault.Unreachable, fault.Busy, fault.ServerFailed, fault.Stalled, fault.Canceled, fault.Unauthorized, fault.CertificateInvalid, fault.NotFound:
		return true
	default:
		return false
	}
}

func (c *Cache) tryFetch(ctx context.Context, s Source, stream *fetch.Stream, partial *store.Partial, follow func(done, total int64)) (result, error) {
	stream, err := c.openFor(ctx, s, stream, partial)
	if err != nil {
		return result{}, err
	}
	limit := c.options.MaxSize
	if s.MaxSize > 0 {
		limit = min(limit, s.MaxSize)
	}
	transfer := newTransfer(stream, partial, s, follow)
	defer transfer.close()
	if err := c.admit(stream.Version.Size, limit); err != nil {
		return result{}, err
	}
	payload, err := unpack(transfer, partial, limit)
	if err != nil {
		transfer.checkpoint()
		return result{}, err
	}
	return c.keep(s, partial, transfer, payload)
}

// openFor asks for what an unfinished fetch does not have yet, unless there is an answer with the whole file already.
func (c *Cache) openFor(ctx context.Context, s Source, stream *fetch.Stream, partial *store.Partial) (*fetch.Stream, error) {
	var before fetch.Version
	if stream == nil && partial.Journal.Offset > 0 && json.Unmarshal(partial.Journal.Version, &before) == nil && before.Resumable {
		return c.client.Open(ctx, s, fetch.Ask{Resume: &before, Offset: partial.Journal.Offset})
	}
	if err := partial.Reset(); err != nil {
		if stream != nil {
			stream.Close()
		}
		return nil, err
	}
	if stream != nil {
		return stream, nil
	}
	return c.client.Open(ctx, s, fetch.Ask{})
}

// admit refuses what is too large before it is transferred.
func (c *Cache) admit(size, limit int64) error {
	if size > limit {
		return tooLarge(limit)
	}
	if size > 0 {
		return c.store.Fits(size)
	}
	return nil
}

func tooLarge(limit int64) error {
	return fault.New(fault.TooLarge, fault.Location, "the file has more than the %d bytes that are allowed, decompressed; use a smaller one, or raise the limit", limit)
}

// payload is what was decompressed.
type payload struct {
	format decompress.Format
	sha256 string
	size   int64
}

// unpack reads all of a transfer, and writes its decompressed bytes, where those are others.
func unpack(t *transfer, partial *store.Partial, limit int64) (p payload, err error) {
	raw, err := readahead.NewReaderSize(t, bufferCount, bufferSize)
	if err != nil {
		return payload{}, err
	}
	// The goroutine behind it writes to partial, so nothing else may until it has ended.
	defer func() {
		t.stream.Interrupt()
		raw.Close()
	}()
	buffered := bufio.NewReaderSize(raw, bufferSize)
	p.format, err = decompress.Sniff(buffered)
	if err != nil {
		return payload{}, err
	}
	if p.format == decompress.Raw {
		p.size, err = copyLimited(io.Discard, buffered, limit)
		p.sha256 = t.digest()
		return p, err
	}
	out, err := partial.Payload()
	if err != nil {
		return payload{}, err
	}
	reader, err := decompress.NewReader(p.format, buffered)
	if err != nil {
		return payload{}, err
	}
	defer reader.Close()
	ahead, err := readahead.NewReaderSize(reader, bufferCount, bufferSize)
	if err != nil {
		return payload{}, err
	}
	defer ahead.Close()
	sum := sha256.New()
	if p.size, err = copyLimited(io.MultiWriter(out, sum), ahead, limit); err != nil {
		return payload{}, err
	}
	p.sha256 = hex.EncodeToString(sum.Sum(nil))
	return p, nil
}

func copyLimited(w io.Writer, r io.Reader, limit int64) (int64, error) {
	n, err := io.CopyBuffer(onlyWriter{w}, io.LimitReader(r, limit+1), make([]byte, bufferSize))
	if err == nil && n > limit {
		err = tooLarge(limit)
	}
	return n, err
}

// onlyWriter hides ReadFrom, with which io.Discard would use buffers of 8 KiB.
type onlyWriter struct{ io.Writer }

// keep compares what came with what was asked for, and gives it its place.
func (c *Cache) keep(s Source, partial *store.Partial, t *transfer, p payload) (result, error) {
	version := t.stream.Version
	if version.Blob != "" && version.Blob != "sha256:"+t.digest() {
		return result{}, fault.New(fault.Invalid, fault.Location, "the registry sent other bytes than those of %s; upload the artifact again", version.Blob)
	}
	if s.SHA256 != "" && s.SHA256 != p.sha256 {
		if s.SHA256 == t.digest() {
			return result{}, fault.New(fault.DigestMismatch, fault.Digest, "this is the digest of the %s file; give that of the decompressed one, %s", p.format, p.sha256)
		}
		return result{}, fault.New(fault.DigestMismatch, fault.Digest, "%s has a file with the digest %s; correct the digest, or upload the file that is meant",
			s.Location, p.sha256)
	}
	if err := partial.Commit(p.sha256, p.size); err != nil {
		return result{}, err
	}
	text, err := json.Marshal(version)
	if err == nil {
		err = c.store.SetRecord(s.Key(), store.Record{Version: text, SHA256: p.sha256, Size: p.size})
	}
	if err != nil {
		c.store.Unpin(p.sha256)
		return result{}, err
	}
	return result{sha256: p.sha256, size: p.size, outcome: fetched}, nil
}
