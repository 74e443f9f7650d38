// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caplv/caplv/operator/artifact/fault"
)

// result is what a flight brings back. Its file is pinned until the last caller has left.
type result struct {
	sha256  string
	size    int64
	outcome string
	leave   func()
}

// flightKey is the same for calls that may share a fetch: the same place, credentials, digest and limit.
func flightKey(s Source) string {
	c := s.Credentials
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", []string{
		s.Key(), s.SHA256, fmt.Sprint(s.MaxSize), c.Username, c.Password, c.IdentityToken, c.RegistryToken, c.AccessKeyID, c.SecretAccessKey, c.SessionToken,
	}))
	return string(sum[:])
}

// flight is work that several callers wait for.
type flight struct {
	cancel      context.CancelFunc
	ended       chan struct{}
	done, total atomic.Int64
	callers     int

	result result
	err    error
}

// flights is the work that goes on. The zero value is ready.
type flights struct {
	mu      sync.Mutex
	flights map[string]*flight
}

const progressInterval = 500 * time.Millisecond

// join waits for the work of a key, which it starts unless it goes on already. The work's context ends when nobody waits. Each caller calls the result's
// leave, and drop is called once after the last of them.
func (fs *flights) join(ctx context.Context, key string, progress func(done, total int64),
	work func(context.Context, func(done, total int64)) (result, error), drop func(result),
) (result, error) {
	f := fs.enter(ctx, key, work, drop)
	leave := func() { fs.leave(key, f, drop) }
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		select {
		case <-f.ended:
			if f.err != nil {
				leave()
				return result{}, f.err
			}
			if progress != nil {
				progress(f.done.Load(), f.total.Load())
			}
			r := f.result
			r.leave = leave
			return r, nil
		case <-ticker.C:
			if progress != nil {
				progress(f.done.Load(), f.total.Load())
			}
		case <-ctx.Done():
			leave()
			return result{}, fault.New(fault.Canceled, fault.Other, "nobody waits for the file any more").Because(ctx.Err())
		}
	}
}

func (fs *flights) enter(ctx context.Context, key string, work func(context.Context, func(done, total int64)) (result, error), drop func(result)) *flight {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f := fs.flights[key]; f != nil {
		f.callers++
		return f
	}
	workContext, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &flight{cancel: cancel, ended: make(chan struct{}), callers: 1}
	f.total.Store(-1)
	if fs.flights == nil {
		fs.flights = map[string]*flight{}
	}
	fs.flights[key] = f
	go func() {
		defer cancel()
		f.result, f.err = work(workContext, func(done, total int64) {
			f.done.Store(done)
			f.total.Store(total)
		})
		fs.mu.Lock()
		abandoned := f.callers == 0
		if fs.flights[key] == f {
			delete(fs.flights, key)
		}
		close(f.ended)
		fs.mu.Unlock()
		if abandoned && f.err == nil {
			drop(f.result)
		}
	}()
	return f
}

// leave is called once by each caller.
func (fs *flights) leave(key string, f *flight, drop func(result)) {
	fs.mu.Lock()
	f.callers--
	last := f.callers == 0
	ended := false
	select {
	case <-f.ended:
		ended = true
	default:
	}
	if last && !ended && fs.flights[key] == f {
		// Whoever comes now begins anew: this one is being canceled.
		delete(fs.flights, key)
	}
	fs.mu.Unlock()
	switch {
	case last && ended && f.err == nil:
		drop(f.result)
	case last:
		f.cancel()
	}
}

// keyedLock is a lock for each key. The zero value is ready.
type keyedLock struct {
	mu    sync.Mutex
	locks map[string]*keyed
}

type keyed struct {
	slot  chan struct{}
	users int
}

// lock waits for the lock of a key, or for the end of ctx. The function that it returns unlocks it.
func (k *keyedLock) lock(ctx context.Context, key string) (func(), error) {
	k.mu.Lock()
	if k.locks == nil {
		k.locks = map[string]*keyed{}
	}
	l := k.locks[key]
	if l == nil {
		l = &keyed{slot: make(chan struct{}, 1)}
		k.locks[key] = l
	}
	l.users++
	k.mu.Unlock()
	forget := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.locks, key)
		}
	}
	select {
	case l.slot <- struct{}{}:
		return func() {
			<-l.slot
			forget()
		}, nil
	case <-ctx.Done():
		forget()
		return nil, fault.New(fault.Canceled, fault.Other, "nobody waits for the file any more").Because(ctx.Err())
	}
}
