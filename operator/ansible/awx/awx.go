// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package awx has AWX, or an automation controller, carry out runs: it launches the job templates that playbooks/configure_awx.yml makes.
//
// AWX ignores what a template does not prompt for, and an ignored limit would mean all hosts. So the template is looked at before a launch, and
// a job that ignored something is canceled. AWX has no keys for launches either: a job carries its key in its variables, and is looked for there.
package awx

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/caplv/caplv/operator/ansible"
)

const (
	// DefaultAPIPrefix is where AWX has its API. Ansible Automation Platform 2.5 and newer has it at PlatformAPIPrefix.
	DefaultAPIPrefix  = "/api/v2"
	PlatformAPIPrefix = "/api/controller/v2"
	// DefaultTemplatePrefix is what the names of the job templates begin with.
	DefaultTemplatePrefix = "CAPLV "
	// DefaultTimeout is how long one request may take.
	DefaultTimeout = 20 * time.Second
)

// Config says where AWX is, and what is used of it.
type Config struct {
	// URL is where AWX is, without the path of its API. It must be https: the token travels along.
	URL string
	// APIPrefix is the path of its API; DefaultAPIPrefix when empty.
	APIPrefix string
	// Token is an OAuth2 token with the scope write, of a user who may execute the job templates.
	Token string
	// CA are the certificate authorities (PEM) that AWX is verified against; those of the system when empty.
	CA []byte
	// Organization is that of the job templates; needed where their names are not unique.
	Organization string
	// TemplatePrefix is what the names of the job templates begin with; DefaultTemplatePrefix when empty.
	TemplatePrefix string
	// Timeout is how long one request may take; DefaultTimeout when zero.
	Timeout time.Duration
	// PollInterval is how often Follow asks while there is news; less often when there is none. One second when zero.
	PollInterval time.Duration
	// Settle is how long a launch without an answer is waited for before it is tried again; a minute when zero.
	Settle time.Duration
}

// Backend is AWX. Keep one for each Config: it remembers launches that got no answer.
type Backend struct {
	config   Config
	client   *client
	flights  singleflight.Group
	mu       sync.Mutex
	doubtful map[string]time.Time
	now      func() time.Time
}

var _ ansible.Backend = (*Backend)(nil)

var prefixPattern = regexp.MustCompile("^(/[A-Za-z0-9_-]+)+$")

// New returns the backend for a configuration. Nothing is asked yet. Errors name the field that is wrong.
func New(config Config) (*Backend, error) {
	base, err := url.Parse(config.URL)
	if err != nil || base.Scheme != "https" || base.Hostname() == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, rejected("the URL of AWX must read https://HOST[:PORT], without anything after it")
	}
	setDefault(&config.APIPrefix, DefaultAPIPrefix)
	setDefault(&config.TemplatePrefix, DefaultTemplatePrefix)
	setDefault(&config.Timeout, DefaultTimeout)
	setDefault(&config.PollInterval, time.Second)
	setDefault(&config.Settle, time.Minute)
	config.APIPrefix = strings.TrimRight(config.APIPrefix, "/")
	if !prefixPattern.MatchString(config.APIPrefix) {
		return nil, rejected("the prefix of AWX's API must be a path such as %s, or %s for Ansible Automation Platform 2.5 and newer", DefaultAPIPrefix, PlatformAPIPrefix)
	}
	config.Token = strings.TrimSpace(config.Token)
	if config.Token == "" || strings.ContainsAny(config.Token, " \r\n\t") {
		return nil, rejected("the token of AWX must be one word: put an OAuth2 token into the Secret, under \"token\"")
	}
	transport, err := newTransport(config.CA)
	if err != nil {
		return nil, err
	}
	return &Backend{
		config: config,
		client: &client{
			base:  strings.TrimRight(base.String(), "/") + config.APIPrefix + "/",
			token: config.Token,
			http:  &http.Client{Transport: transport, Timeout: config.Timeout, CheckRedirect: checkRedirect},
			sleep: sleep,
		},
		doubtful: map[string]time.Time{},
		now:      time.Now,
	}, nil
}

// Close closes the connections that are kept for later.
func (b *Backend) Close() { b.client.http.CloseIdleConnections() }

// Ping asks AWX for its version. It needs no rights: with it a wrong URL, prefix or certificate is told from a wrong token.
func (b *Backend) Ping(ctx context.Context) (version string, err error) {
	var pong struct {
		Version string `json:"version"`
	}
	if _, err := b.client.get(ctx, "ping/", nil, &pong); err != nil {
		return "", classify(err, "read the API")
	}
	return pong.Version, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func rejected(format string, args ...any) error {
	return &ansible.Error{Reason: ansible.Rejected, Message: fmt.Sprintf(format, args...)}
}

func unauthorized(format string, args ...any) error {
	return &ansible.Error{Reason: ansible.Unauthorized, Message: fmt.Sprintf(format, args...)}
}

func unavailable(format string, args ...any) error {
	return &ansible.Error{Reason: ansible.Unavailable, Message: fmt.Sprintf(format, args...)}
}

func unknownRun(format string, args ...any) error {
	return &ansible.Error{Reason: ansible.UnknownRun, Message: fmt.Sprintf(format, args...)}
}
