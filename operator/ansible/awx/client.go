// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package awx

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
)

const (
	// maxAnswer bounds what is read of one answer. AWX cuts the result of an event at 700 kB.
	maxAnswer = 16 << 20
	// attempts are how often a request is made that AWX has no time for, and longestWait how long AWX may make us wait in between.
	attempts    = 4
	longestWait = 5 * time.Second
	firstWait   = 250 * time.Millisecond
)

// errTooLarge is an answer of more than maxAnswer.
var errTooLarge = errors.New("AWX's answer is larger than 16 MiB")

// client makes requests to AWX's API. Its errors have neither the token nor the request's body.
type client struct {
	base  string
	token string
	http  *http.Client
	sleep func(context.Context, time.Duration) error
}

// answer is what came back.
type answer struct {
	status int
	body   []byte
	// time is when AWX says that it is.
	time time.Time
}

// statusError is an answer that is not a success.
type statusError struct {
	method, path string
	status       int
	detail       string
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("AWX answers %s %s with %d %s", e.method, e.path, e.status, http.StatusText(e.status))
	if e.detail != "" {
		text += ": " + e.detail
	}
	return text
}

func newTransport(ca []byte) (*http.Transport, error) {
	transport, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return nil, unavailable("the default transport of HTTP has been replaced")
	}
	// It honours the environment's proxies.
	transport = transport.Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	transport.ResponseHeaderTimeout = 0
	if len(bytes.TrimSpace(ca)) > 0 {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(ca) {
			return nil, rejected("ca.crt has no certificate in PEM: it must read -----BEGIN CERTIFICATE----- …")
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	return transport, nil
}

// checkRedirect keeps the token at the host that it is for.
func checkRedirect(next *http.Request, via []*http.Request) error {
	first := via[0]
	if next.URL.Host != first.URL.Host || next.URL.Scheme != first.URL.Scheme {
		return fmt.Errorf("AWX redirects to %s://%s, which does not get the token: set the URL to where AWX is", next.URL.Scheme, next.URL.Host)
	}
	if first.Method != http.MethodGet {
		return errors.New("AWX redirects a request that changes something: check the URL and the prefix of its API")
	}
	if len(via) > 3 {
		return errors.New("AWX redirects in a circle")
	}
	return nil
}

// get asks, again when AWX is busy or does not answer, and decodes the answer.
func (c *client) get(ctx context.Context, path string, query url.Values, into any) (answer, error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.do(ctx, http.MethodGet, path, nil, into, true)
}

// post sends a body. Only with repeatable is it sent again when nobody knows whether AWX has seen it.
func (c *client) post(ctx context.Context, path string, body, into any, repeatable bool) error {
	content, err := json.Marshal(body)
	if err != nil {
		return rejected("the variables cannot be written as JSON: %v", err)
	}
	_, err = c.do(ctx, http.MethodPost, path, content, into, repeatable)
	return err
}

func (c *client) do(ctx context.Context, method, path string, body []byte, into any, repeatable bool) (answer, error) {
	var failure error
	for attempt := range attempts {
		got, wait, err := c.once(ctx, method, path, body)
		switch {
		case err != nil && !repeatable && !neverSent(err):
			return got, err
		case err == nil && got.status/100 == 2:
			return got, decode(got, into)
		case err == nil:
			failed := &statusError{method: method, path: pathOnly(path), status: got.status, detail: detail(got.body)}
			// Of the two, only 429 says that the request was not begun.
			if got.status != http.StatusTooManyRequests && (got.status < 500 || !repeatable) {
				return got, failed
			}
			err = failed
		case errors.Is(err, errTooLarge), isRedirectRefused(err):
			return got, err
		}
		failure = err
		if attempt == attempts-1 {
			break
		}
		if err := c.sleep(ctx, backoff(attempt, wait)); err != nil {
			return answer{}, failure
		}
	}
	return answer{}, failure
}

// once makes one request. wait is what AWX has said in Retry-After.
func (c *client) once(ctx context.Context, method, path string, body []byte) (got answer, wait time.Duration, err error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, 0, err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Accept", "application/json, text/plain")
	if method == http.MethodPost {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(request)
	if err != nil {
		return answer{}, 0, err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return answer{}, 0, err
	}
	if len(content) > maxAnswer {
		return answer{}, 0, errTooLarge
	}
	got = answer{status: response.StatusCode, body: content, time: time.Now()}
	if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		got.time = date
	}
	return got, retryAfter(response.Header.Get("Retry-After"), got.time), nil
}

func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(header); err == nil && seconds > 0 {
		return time.Duration(min(seconds, 3600)) * time.Second
	}
	if date, err := http.ParseTime(header); err == nil {
		return max(0, date.Sub(now))
	}
	return 0
}

// backoff is how long to wait after a failed attempt: what AWX has asked for, or longer each time.
func backoff(attempt int, asked time.Duration) time.Duration {
	if asked > 0 {
		return min(asked, longestWait)
	}
	wait := firstWait << attempt
	return wait + time.Duration(rand.Int64N(int64(wait)/2)) //nolint:gosec // Spreads requests, keeps no secret.
}

func sleep(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// neverSent says whether a request failed before AWX could have seen any of it.
func neverSent(err error) bool {
	operation, ok := errors.AsType[*net.OpError](err)
	return ok && operation.Op == "dial"
}

func isRedirectRefused(err error) bool {
	// The http client wraps the error of CheckRedirect, which has no type.
	return strings.Contains(err.Error(), ": AWX redirects ")
}

func decode(got answer, into any) error {
	if into == nil || len(bytes.TrimSpace(got.body)) == 0 {
		return nil
	}
	if text, ok := into.(*string); ok {
		*text = string(got.body)
		return nil
	}
	if err := json.Unmarshal(got.body, into); err != nil {
		return errNotAWX
	}
	return nil
}

// errNotAWX is an answer that AWX would not give: a login page, another service.
var errNotAWX = errors.New("what answers is not AWX's API: check the URL and the prefix of the API")

func pathOnly(path string) string { return strings.SplitN(path, "?", 2)[0] }

// detail is what an answer of AWX says of an error, in one line.
func detail(body []byte) string {
	var fields map[string]any
	if json.Unmarshal(body, &fields) != nil {
		return ""
	}
	if text, ok := fields["detail"].(string); ok {
		return line(text, 512)
	}
	content, err := json.Marshal(fields)
	if err != nil {
		return ""
	}
	return line(string(content), 512)
}

// line makes a text one line of at most limit bytes, without control characters.
func line(text string, limit int) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }), " ")
	if len(text) <= limit {
		return text
	}
	const more = "…"
	return strings.ToValidUTF8(text[:limit-len(more)], "") + more
}
