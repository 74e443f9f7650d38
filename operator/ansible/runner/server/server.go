// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package server puts an ansible.Backend on a Unix socket; package api says how it is spoken to.
package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/go-logr/logr"

	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/ansible/runner/api"
)

// Options are how a backend is served.
type Options struct {
	Backend ansible.Backend
	// AllowedUIDs may connect, besides this process's own.
	AllowedUIDs []uint32
	// Metrics is served at /metrics, unless it is nil.
	Metrics http.Handler
	Log     logr.Logger
}

// New returns the server. Its listener is from Listen.
func New(o Options) *http.Server {
	h := &handler{Options: o}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+api.Runs, h.submit)
	mux.HandleFunc("GET "+api.Runs+"/{key}", h.status)
	mux.HandleFunc("GET "+api.Runs+"/{key}/events", h.follow)
	mux.HandleFunc("DELETE "+api.Runs+"/{key}", h.cancel)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	if o.Metrics != nil {
		mux.Handle("GET /metrics", o.Metrics)
	}
	return &http.Server{
		Handler: h.known(mux), ConnContext: withPeer,
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
}

type handler struct{ Options }

// known refuses accounts that are not allowed.
func (h *handler) known(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		uid, ok := r.Context().Value(peerKey{}).(uint32)
		if !ok || int(uid) != os.Geteuid() && !slices.Contains(h.AllowedUIDs, uid) {
			h.Log.Info("Refused a connection", "uid", uid)
			fail(w, &ansible.Error{Reason: ansible.Unauthorized, Message: fmt.Sprintf("uid %d may not use this socket; see --allow-uid", uid)})
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (h *handler) submit(w http.ResponseWriter, r *http.Request) {
	var request ansible.Request
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, api.MaxBody))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&request)
	if err == nil {
		if _, after := decoder.Token(); !errors.Is(after, io.EOF) {
			err = errors.New("something follows the request")
		}
	}
	if err != nil {
		fail(w, &ansible.Error{Reason: ansible.Rejected, Message: decodeMessage(err)})
		return
	}
	ref, err := h.Backend.Submit(r.Context(), request)
	answer(w, ref, err)
}

// decodeMessage says what is wrong with JSON, never with a value of it: it may be a secret.
func decodeMessage(err error) string {
	if wrongType, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf("the request's field %s must not be a JSON %s", wrongType.Field, wrongType.Value)
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fmt.Sprintf("the request is larger than %d bytes", tooLarge.Limit)
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("the request is no JSON, at byte %d", syntax.Offset)
	}
	return "the request cannot be read: " + err.Error()
}

func (h *handler) status(w http.ResponseWriter, r *http.Request) {
	status, err := h.Backend.Status(r.Context(), ansible.Ref{Key: r.PathValue("key")})
	answer(w, status, err)
}

func (h *handler) cancel(w http.ResponseWriter, r *http.Request) {
	ref := ansible.Ref{Key: r.PathValue("key")}
	answer(w, ref, h.Backend.Cancel(r.Context(), ref))
}

func (h *handler) follow(w http.ResponseWriter, r *http.Request) {
	ref := ansible.Ref{Key: r.PathValue("key")}
	var after int64
	if text := r.URL.Query().Get("after"); text != "" {
		var err error
		if after, err = strconv.ParseInt(text, 10, 64); err != nil {
			fail(w, &ansible.Error{Reason: ansible.Rejected, Message: "after must be the number of an event"})
			return
		}
	}
	// Asked first, since a stream that has begun cannot fail any more.
	if _, err := h.Backend.Status(r.Context(), ref); err != nil {
		fail(w, err)
		return
	}
	// The request has been read; the answer takes as long as the run.
	controller := http.NewResponseController(w)
	_ = controller.SetReadDeadline(time.Time{})
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	_ = controller.Flush()
	encoder := json.NewEncoder(w)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	err := h.Backend.Follow(ctx, ref, after, func(event ansible.Event) {
		if encoder.Encode(event) != nil || controller.Flush() != nil {
			cancel()
		}
	})
	if err != nil && r.Context().Err() == nil {
		h.Log.Error(err, "Following a run failed", "run", ref.Key)
		// The client sees a stream without an end.
		panic(http.ErrAbortHandler)
	}
}

func answer(w http.ResponseWriter, value any, err error) {
	if err != nil {
		fail(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}

func fail(w http.ResponseWriter, err error) {
	reason := ansible.ReasonOf(err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(api.StatusOf(reason))
	_ = json.NewEncoder(w).Encode(api.Failure{Reason: reason, Message: err.Error()})
}
