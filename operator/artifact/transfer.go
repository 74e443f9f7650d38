// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/caplv/caplv/operator/artifact/fetch"
	"github.com/caplv/caplv/operator/artifact/store"
)

// errSpoiled says that the bytes on disk are not those that the journal vouches for, as after a power cut.
var errSpoiled = errors.New("the unfinished file was damaged on disk")

// How much is transferred between two entries in the journal: what is lost when the process is killed.
const (
	checkpointBytes    = 32 << 20
	checkpointInterval = time.Second
)

// transfer reads a file as it is transferred: first what an earlier fetch has left on disk, then what the server sends, which goes to the disk too.
type transfer struct {
	stream  *fetch.Stream
	partial *store.Partial
	follow  func(done, total int64)
	bytes   prometheus.Counter

	resumed int64
	want    string
	done    int64
	sum     hash.Hash
	noted   int64
	notedAt time.Time
}

func newTransfer(stream *fetch.Stream, partial *store.Partial, s Source, follow func(done, total int64)) *transfer {
	return &transfer{
		stream: stream, partial: partial, follow: follow, bytes: transferred.WithLabelValues(s.Transport()),
		resumed: partial.Journal.Offset, want: partial.Journal.SHA256, sum: sha256.New(), notedAt: time.Now(),
	}
}

// Read is called from one goroutine.
func (t *transfer) Read(p []byte) (int, error) {
	if t.done < t.resumed {
		return t.reread(p)
	}
	n, err := t.stream.Read(p)
	if n == 0 {
		return 0, err
	}
	t.bytes.Add(float64(n))
	if _, err := t.partial.Write(p[:n]); err != nil {
		return 0, err
	}
	t.count(p[:n])
	if t.done-t.noted >= checkpointBytes || time.Since(t.notedAt) >= checkpointInterval {
		t.checkpoint()
	}
	return n, err
}

func (t *transfer) reread(p []byte) (int, error) {
	n, err := t.partial.Read(p[:min(int64(len(p)), t.resumed-t.done)])
	if err != nil {
		return 0, errSpoiled
	}
	t.count(p[:n])
	if t.done == t.resumed && t.digest() != t.want {
		return 0, errSpoiled
	}
	return n, nil
}

func (t *transfer) count(p []byte) {
	t.sum.Write(p)
	t.done += int64(len(p))
	t.follow(t.done, t.stream.Version.Size)
}

// digest is that of the bytes so far.
func (t *transfer) digest() string { return hex.EncodeToString(t.sum.Sum(nil)) }

// checkpoint has the next fetch begin here. Without it, that begins a little earlier.
func (t *transfer) checkpoint() {
	t.noted, t.notedAt = t.done, time.Now()
	if !t.stream.Version.Resumable || t.done < t.resumed {
		return
	}
	version, err := json.Marshal(t.stream.Version)
	if err == nil {
		err = t.partial.Checkpoint(store.Journal{Version: version, Offset: t.done, SHA256: t.digest()})
	}
	_ = err // A disk that cannot take the journal cannot take the file either, which is reported.
}

func (t *transfer) close() { t.stream.Close() }
