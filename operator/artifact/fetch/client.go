// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/caplv/caplv/operator/artifact/fault"
)

// Options are the limits of a Client. The zero value of each member stands for its default.
type Options struct {
	// RootCAs replaces the system's certificate authorities, which SSL_CERT_FILE and SSL_CERT_DIR choose.
	RootCAs *x509.CertPool
	// StallWindow and StallBytes: a connection that sends fewer bytes during a window is given up. Default 64 KiB in 1 minute.
	StallWindow time.Duration
	StallBytes  int64
	// HeaderTimeout bounds the wait for an answer. Default 30 seconds.
	HeaderTimeout time.Duration
	// Retries is how many times in a row a request is repeated without one byte of progress. Default 5.
	Retries int
	// RetryWait is the first wait before a repetition; it doubles. Default 500 milliseconds.
	RetryWait time.Duration
	// RetryMaxWait bounds each wait, also one that the server asks for. Default 30 seconds.
	RetryMaxWait time.Duration
}

func (o *Options) setDefaults() {
	defaultTo(&o.StallWindow, time.Minute)
	defaultTo(&o.StallBytes, 64<<10)
	defaultTo(&o.HeaderTimeout, 30*time.Second)
	defaultTo(&o.Retries, 5)
	defaultTo(&o.RetryWait, 500*time.Millisecond)
	defaultTo(&o.RetryMaxWait, 30*time.Second)
}

func defaultTo[T comparable](value *T, fallback T) {
	if *value == *new(T) {
		*value = fallback
	}
}

// Client opens sources.
type Client struct {
	options            Options
	verified, insecure http.RoundTripper
}

// NewClient returns a Client. The proxy variables of the environment count.
func NewClient(options Options) *Client {
	options.setDefaults()
	return &Client{options: options, verified: newTransport(options, false), insecure: newTransport(options, true)}
}

// newTransport speaks HTTP/1.1 only: one stream over HTTP/2 is slower, and saves nothing.
func newTransport(o Options, insecure bool) *http.Transport {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 15 * time.Second}).DialContext,
		TLSClientConfig:       &tls.Config{RootCAs: o.RootCAs, InsecureSkipVerify: insecure, MinVersion: tls.VersionTLS12}, //nolint:gosec // insecureSkipTLSVerify is a field of the API.
		TLSHandshakeTimeout:   15 * time.Second,
		ResponseHeaderTimeout: o.HeaderTimeout,
		IdleConnTimeout:       time.Minute,
		MaxIdleConnsPerHost:   4,
		// The magic bytes decide about decompression, not a header.
		DisableCompression: true,
		ReadBufferSize:     64 << 10,
		Protocols:          protocols,
		// A header is a few lines. More would be kept in memory.
		MaxResponseHeaderBytes: 256 << 10,
	}
}

// http returns a client for one source: it follows redirects over TLS only, and takes credentials to no other server.
func (c *Client) http(s Source, plain bool) *http.Client {
	transport := c.verified
	if s.InsecureSkipTLSVerify {
		transport = c.insecure
	}
	return &http.Client{Transport: onlySchemes{transport, plain}, CheckRedirect: checkRedirect}
}

// onlySchemes refuses requests to other places than the web, and without TLS unless the source asks for that.
type onlySchemes struct {
	http.RoundTripper

	plain bool
}

func (t onlySchemes) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "https" || (t.plain && r.URL.Scheme == "http") {
		return t.RoundTripper.RoundTrip(r)
	}
	if r.Body != nil {
		r.Body.Close()
	}
	return nil, fault.New(fault.RedirectRefused, fault.Location, "the server leads to a place with the scheme %q, which is not followed; "+
		"name a source that is served over HTTPS all the way", r.URL.Scheme)
}

const maxRedirects = 10

func checkRedirect(r *http.Request, via []*http.Request) error {
	if len(via) >= maxRedirects {
		return fault.New(fault.RedirectRefused, fault.Location, "the server redirects more than %d times; name the file's final URL", maxRedirects)
	}
	if !sameServer(r.URL, via[0].URL) {
		// net/http keeps them for subdomains and for other ports.
		for _, header := range []string{"Authorization", "Cookie", "Referer"} {
			r.Header.Del(header)
		}
	}
	return nil
}

func sameServer(a, b *url.URL) bool { return a.Scheme == b.Scheme && a.Host == b.Host }

// redact returns a URL without what may be secret in it: its user part and its query.
func redact(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "the URL"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// Ask is what a file is asked for with.
type Ask struct {
	// Known is a version that the caller has. When it is still the current one, the answer is NotModified.
	Known *Version
	// Resume is the version of which the caller has the first Offset bytes.
	Resume *Version
	Offset int64
}

// Answer is a file's bytes from an offset on.
type Answer struct {
	Version Version
	// NotModified says that the known version is the current one. There is no Body then.
	NotModified bool
	// Offset is where Body begins: that of the Ask, or 0 when the file was replaced or the server cannot resume.
	Offset int64
	Body   io.ReadCloser
}

// opener is one file on one server. Open makes one attempt.
type opener interface {
	Open(ctx context.Context, ask Ask) (*Answer, error)
}

func (c *Client) opener(s Source) (opener, error) {
	switch l := s.Location.(type) {
	case HTTPS:
		return c.newHTTPS(s, l)
	case OCI:
		return c.newOCI(s, l)
	case S3:
		return c.newS3(s, l)
	default:
		return nil, fault.New(fault.InvalidSource, fault.Location, "the kind of source is not known")
	}
}

// describe turns an error of a request into a fault. PLACE names the server without secrets.
func describe(err error, place string) error {
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	if errors.Is(err, context.Canceled) {
		return fault.New(fault.Canceled, fault.Other, "the fetch was canceled").Because(err)
	}
	if text := certificateProblem(err); text != "" {
		return fault.New(fault.CertificateInvalid, fault.TLS, "the certificate of %s is not accepted: %s; have the operator trust its authority "+
			"(SSL_CERT_FILE), or mend the server's certificate", place, text).Because(err)
	}
	if netErr, ok := errors.AsType[net.Error](err); ok && netErr.Timeout() {
		return fault.Transient(fault.Unreachable, fault.Location, err, "%s did not answer in time; check the address, the network and the proxy", place)
	}
	return fault.Transient(fault.Unreachable, fault.Location, err, "%s cannot be reached: %s; check the address, the network and the proxy", place, cause(err))
}

func certificateProblem(err error) string {
	if e, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return e.Err.Error()
	}
	if e, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return e.Msg
	}
	return ""
}

// cause is the innermost text of a network error. The outer ones name URLs, and ports that differ each time.
func cause(err error) string {
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		return "no address for the name " + e.Name
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
