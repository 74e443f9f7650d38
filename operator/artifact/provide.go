// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/caplv/caplv/operator/artifact/fault"
	"github.com/caplv/caplv/operator/artifact/fetch"
	"github.com/caplv/caplv/operator/artifact/store"
)

// proof says that a server let these credentials have a source's file, in the life of this process.
type proof struct {
	sha256 string
	at     time.Time
}

// proofs are by the key of a flight, so that nobody gets a private file out of the cache who could not have fetched it. The zero value is ready.
type proofs struct{ m sync.Map }

func (p *proofs) of(key string) (proof, bool) {
	value, ok := p.m.Load(key)
	if !ok {
		return proof{}, false
	}
	known, ok := value.(proof)
	return known, ok
}

func (p *proofs) set(key, sha256 string) { p.m.Store(key, proof{sha256, time.Now()}) }

// provide pins a source's file, after fetching it where that is needed.
func (c *Cache) provide(ctx context.Context, s Source, follow func(done, total int64)) (result, error) {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return result{}, fault.New(fault.Canceled, fault.Other, "nobody waits for the file any more").Because(ctx.Err())
	}
	key := flightKey(s)
	known, ok := c.proven.of(key)
	if ok && (s.SHA256 != "" || time.Since(known.at) < c.options.Fresh) {
		r, err := c.pin(ctx, known.sha256, hit, follow)
		if !errors.Is(err, store.ErrMissing) {
			return r, err
		}
	}
	// Two sources with the same digest are one file, and so is what two callers with different credentials get from one place.
	if s.SHA256 != "" {
		unlock, err := c.digests.lock(ctx, "digest "+s.SHA256)
		if err != nil {
			return result{}, err
		}
		defer unlock()
	}
	unlock, err := c.digests.lock(ctx, "source "+s.Key())
	if err != nil {
		return result{}, err
	}
	defer unlock()
	r, err := c.ask(ctx, s, follow)
	if err == nil {
		c.proven.set(key, r.sha256)
	}
	return r, err
}

// pin pins what the cache has. Verifying it for the first time takes a while, and happens once.
func (c *Cache) pin(ctx context.Context, sha256, outcome string, follow func(done, total int64)) (result, error) {
	unlock, err := c.digests.lock(ctx, "verify "+sha256)
	if err != nil {
		return result{}, err
	}
	defer unlock()
	size, err := c.store.Pin(ctx, sha256, follow)
	return result{sha256: sha256, size: size, outcome: outcome}, err
}

// ask asks the source, and fetches what the cache does not have.
func (c *Cache) ask(ctx context.Context, s Source, follow func(done, total int64)) (result, error) {
	have, version := c.cached(s)
	if have == "" {
		return c.fetch(ctx, s, nil, follow)
	}
	stream, err := c.client.Open(ctx, s, fetch.Ask{Known: version})
	if err != nil {
		return result{}, err
	}
	// A pinned digest is all there is to know: that the server lets the caller in is the question.
	if stream.NotModified || have == s.SHA256 || (version != nil && version.Same(stream.Version)) {
		stream.Close()
		r, err := c.pin(ctx, have, confirmed, follow)
		if !errors.Is(err, store.ErrMissing) {
			return r, err
		}
		stream = nil
	}
	return c.fetch(ctx, s, stream, follow)
}

// cached returns the digest that the cache has for a source, if any, and the version of the server's that this was.
func (c *Cache) cached(s Source) (string, *fetch.Version) {
	digest := s.SHA256
	var version *fetch.Version
	if record, ok := c.store.Record(s.Key()); ok && (digest == "" || digest == record.SHA256) {
		var v fetch.Version
		if json.Unmarshal(record.Version, &v) == nil {
			digest, version = record.SHA256, &v
		}
	}
	if digest == "" || !c.store.Has(digest) {
		return "", nil
	}
	return digest, version
}
