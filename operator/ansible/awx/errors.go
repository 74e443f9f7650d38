// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package awx

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/url"

	"github.com/caplv/caplv/operator/ansible"
)

// classify makes an error of the client one of the contract. may names what the token has to be allowed, for the case that it is not.
func classify(err error, may string) error {
	if err == nil {
		return nil
	}
	if known, ok := errors.AsType[*ansible.Error](err); ok {
		return known
	}
	if errors.Is(err, errNotAWX) {
		return rejected("%v", err)
	}
	if failed, ok := errors.AsType[*statusError](err); ok {
		return classifyStatus(failed, may)
	}
	if verification(err) {
		return unavailable("the certificate of AWX is not trusted: %v; put the certificate authority into the Secret, under \"ca.crt\"", plain(err))
	}
	return unavailable("AWX does not answer: %v", plain(err))
}

func classifyStatus(failed *statusError, may string) error {
	switch failed.status {
	case http.StatusUnauthorized:
		return unauthorized("AWX does not accept the token: it is wrong, expired or revoked. Make one with the scope write, of a user who may %s", may)
	case http.StatusForbidden:
		return unauthorized("the user of the token lacks a right in AWX: it has to be allowed to %s, and the token needs the scope write (%v)", may, failed)
	case http.StatusNotFound:
		return rejected("%v: check the URL and the prefix of the API, which is %s for AWX and %s for Ansible Automation Platform 2.5 and newer",
			failed, DefaultAPIPrefix, PlatformAPIPrefix)
	case http.StatusTooManyRequests:
		return &ansible.Error{Reason: ansible.Overloaded, Message: failed.Error()}
	}
	if failed.status >= 500 {
		return unavailable("%v", failed)
	}
	return rejected("%v", failed)
}

func is(err error, status int) bool {
	failed, ok := errors.AsType[*statusError](err)
	return ok && failed.status == status
}

func verification(err error) bool {
	_, wrong := errors.AsType[*tls.CertificateVerificationError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, name := errors.AsType[x509.HostnameError](err)
	return wrong || unknown || name
}

// plain takes the URL off an error, which may be long and has what was asked.
func plain(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}

func isStatus(err error) bool {
	_, ok := errors.AsType[*statusError](err)
	return ok
}
