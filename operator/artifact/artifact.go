// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package artifact fetches files over HTTPS, from OCI registries and from S3, decompresses them, compares their digest, and keeps them in a
// cache on disk, which images and boot artifacts share. It knows nothing of hosts and of Kubernetes.
//
// A file's identity is the SHA-256 digest of its decompressed bytes. A source without a pinned digest is asked whether it has changed; a changed
// file is kept beside the old one, under a digest of its own.
package artifact

import (
	"context"
	"errors"
	"regexp"
	"time"

	"github.com/caplv/caplv/operator/artifact/fault"
	"github.com/caplv/caplv/operator/artifact/fetch"
	"github.com/caplv/caplv/operator/artifact/store"
)

// Source describes a file to fetch.
type Source = fetch.Source

// Error is every error of this package.
type Error = fault.Error

// Options are the limits of a Cache. The zero value of each member stands for its default.
type Options struct {
	// Fetch has the limits of connections.
	Fetch fetch.Options
	// MaxBytes bounds what the cache has on disk. Default 100 GiB.
	MaxBytes int64
	// MaxSize bounds one decompressed file. Default 64 GiB, and never more than MaxBytes.
	MaxSize int64
	// Timeout bounds one fetch with all its repetitions. Default 2 hours.
	Timeout time.Duration
	// Fresh is how long a source without a digest is not asked again after it was. Default 1 minute.
	Fresh time.Duration
	// Parallel is how many files are fetched or verified at the same time. Default 4.
	Parallel int
}

func (o *Options) setDefaults() {
	defaultTo(&o.MaxBytes, 100<<30)
	defaultTo(&o.MaxSize, 64<<30)
	defaultTo(&o.Timeout, 2*time.Hour)
	defaultTo(&o.Fresh, time.Minute)
	defaultTo(&o.Parallel, 4)
	o.MaxSize = min(o.MaxSize, o.MaxBytes)
}

func defaultTo[T comparable](value *T, fallback T) {
	if *value == *new(T) {
		*value = fallback
	}
}

// Cache has files on disk by their digest. It is safe for concurrent use.
type Cache struct {
	options Options
	store   *store.Store
	client  *fetch.Client
	flights flights
	digests keyedLock
	slots   chan struct{}
	proven  proofs
}

// NewCache opens the cache in a directory, which no other process may use.
func NewCache(dir string, options Options) (*Cache, error) {
	options.setDefaults()
	s, err := store.Open(dir, options.MaxBytes, evictions.Inc)
	if err != nil {
		return nil, err
	}
	c := &Cache{options: options, store: s, client: fetch.NewClient(options.Fetch), slots: make(chan struct{}, options.Parallel)}
	cacheBytes.Set(float64(s.Used()))
	return c, nil
}

// Close lets another process have the directory. Nothing may be under way.
func (c *Cache) Close() error { return c.store.Close() }

// SetReferenced says which sources somebody still wants. When room is needed, what was fetched from others, and earlier versions of these, are
// removed first.
func (c *Cache) SetReferenced(sources []Source) {
	digests := map[string]bool{}
	for _, s := range sources {
		digest := s.SHA256
		if record, ok := c.store.Record(s.Key()); ok && digest == "" {
			digest = record.SHA256
		}
		digests[digest] = true
	}
	c.store.SetReferenced(digests)
}

func (c *Cache) measure() { cacheBytes.Set(float64(c.store.Used())) }

// File is a file in the cache. It stays there until Release.
type File struct {
	// Path is where the file is. It must not be changed.
	Path string
	// SHA256 is the digest of its bytes in hexadecimal, and Size their number.
	SHA256 string
	Size   int64

	release func()
}

// Release lets the cache remove the file when it needs room. It is called once.
func (f File) Release() { f.release() }

var digestPattern = regexp.MustCompile("^[0-9a-f]{64}$")

// Get returns a source's file, and fetches it where the cache does not have it. It blocks until then, or until ctx ends. Equal calls share one fetch,
// which goes on as long as one of them waits. PROGRESS, which may be nil, is called from this goroutine about twice a second with the number of bytes
// that were transferred, and with how many those will be, or -1. Every error is an *Error with a reason and, where one is to blame, a field.
func (c *Cache) Get(ctx context.Context, source Source, progress func(done, total int64)) (File, error) {
	began := time.Now()
	file, outcome, err := c.get(ctx, source, progress)
	if err != nil {
		err = c.blame(err, source)
		outcome = string(fault.ReasonOf(err))
	}
	requests.WithLabelValues(outcome).Inc()
	if outcome == fetched {
		durations.WithLabelValues(source.Transport()).Observe(time.Since(began).Seconds())
	}
	return file, err
}

func (c *Cache) get(ctx context.Context, source Source, progress func(done, total int64)) (File, string, error) {
	if source.Location == nil {
		return File{}, "", fault.New(fault.InvalidSource, fault.Location, "the source names no place")
	}
	if source.SHA256 != "" && !digestPattern.MatchString(source.SHA256) {
		return File{}, "", fault.New(fault.InvalidSource, fault.Digest, "a digest has 64 lower-case hexadecimal digits; it is that of the decompressed file")
	}
	r, err := c.flights.join(ctx, flightKey(source), progress, func(ctx context.Context, follow func(done, total int64)) (result, error) {
		ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
		defer cancel()
		return c.provide(ctx, source, follow)
	}, c.unpin)
	if err != nil {
		return File{}, "", err
	}
	// Each caller has a pin of its own. The flight's own one keeps the file here until all of them have theirs.
	if _, err := c.store.Pin(ctx, r.sha256, nil); err != nil {
		return File{}, "", fault.Transient(fault.CacheFailed, fault.Other, err, "the file was removed from the cache while it was being handed out")
	}
	r.leave()
	return File{Path: c.store.Path(r.sha256), SHA256: r.sha256, Size: r.size, release: func() { c.store.Unpin(r.sha256) }}, r.outcome, nil
}

func (c *Cache) unpin(r result) { c.store.Unpin(r.sha256) }

// blame names the field in an error, which may be shared by callers with different ones.
func (c *Cache) blame(err error, source Source) error {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return fault.New(fault.CacheFailed, fault.Other, "%s", err).Because(err)
	}
	named := *f
	named.Field = source.Fields[f.Part]
	return &named
}
