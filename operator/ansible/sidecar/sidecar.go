// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sidecar asks the sidecar, cmd/ansible-runner, for runs.
package sidecar

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/ansible/runner/api"
)

const (
	// timeout is for everything but Follow: the sidecar answers at once.
	timeout = 10 * time.Second
	// maxAnswer is the size of the largest answer, in bytes.
	maxAnswer = 16 << 20
)

// Client is an ansible.Backend.
type Client struct {
	socket string
	http   *http.Client
}

var _ ansible.Backend = (*Client)(nil)

// New returns a Client for the sidecar on a socket. It need not be there yet.
func New(socket string) *Client {
	var dialer net.Dialer
	return &Client{socket: socket, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
		// A connection that was left open must not outlive a sidecar that was replaced.
		IdleConnTimeout: 30 * time.Second,
	}}}
}

// Submit implements ansible.Backend.
func (c *Client) Submit(ctx context.Context, request ansible.Request) (ansible.Ref, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return ansible.Ref{}, &ansible.Error{Reason: ansible.Rejected, Message: "the request cannot be written as JSON: " + err.Error()}
	}
	var ref ansible.Ref
	err = c.call(ctx, http.MethodPost, api.Runs, body, &ref)
	return ref, err
}

// Status implements ansible.Backend.
func (c *Client) Status(ctx context.Context, ref ansible.Ref) (ansible.Status, error) {
	var status ansible.Status
	err := c.call(ctx, http.MethodGet, api.Run(ref.Key), nil, &status)
	return status, err
}

// Cancel implements ansible.Backend.
func (c *Client) Cancel(ctx context.Context, ref ansible.Ref) error {
	return c.call(ctx, http.MethodDelete, api.Run(ref.Key), nil, nil)
}

// Follow implements ansible.Backend. When the sidecar goes away, so that events are missing, the error is Unavailable.
func (c *Client) Follow(ctx context.Context, ref ansible.Ref, after int64, tell func(ansible.Event)) error {
	response, err := c.do(ctx, http.MethodGet, api.Events(ref.Key, after), nil)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewReader(response.Body)
	ended := false
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return c.followed(ctx, ref, ended)
		}
		if err != nil {
			return c.unavailable(err)
		}
		var event ansible.Event
		if err := json.Unmarshal(line, &event); err != nil {
			return c.unavailable(fmt.Errorf("an event is not JSON: %w", err))
		}
		ended = ended || event.Type == ansible.RunEnded
		tell(event)
	}
}

// followed says whether a stream that has ended was whole: the last event may have been told before already.
func (c *Client) followed(ctx context.Context, ref ansible.Ref, ended bool) error {
	if ended {
		return nil
	}
	status, err := c.Status(ctx, ref)
	if err == nil && !status.Phase.Ended() {
		err = c.unavailable(errors.New("the events broke off"))
	}
	return err
}

func (c *Client) call(ctx context.Context, method, path string, body []byte, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	response, err := c.do(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err == nil && answer != nil {
		err = json.Unmarshal(content, answer)
	}
	if err != nil {
		return c.unavailable(err)
	}
	return nil
}

// do returns an answer of success.
func (c *Client) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://sidecar"+path, bytes.NewReader(body))
	if err != nil {
		return nil, c.unavailable(err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.unavailable(err)
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	var failure api.Failure
	content, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err == nil {
		err = json.Unmarshal(content, &failure)
	}
	if err != nil || failure.Reason == "" {
		return nil, c.unavailable(fmt.Errorf("it answered %s", response.Status))
	}
	return nil, &ansible.Error{Reason: failure.Reason, Message: failure.Message}
}

func (c *Client) unavailable(err error) error {
	return &ansible.Error{Reason: ansible.Unavailable, Message: fmt.Sprintf("the Ansible sidecar on %s: %v", c.socket, err)}
}
