// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fetch reads files from HTTPS servers, OCI registries and S3 stores as streams that survive a broken connection.
package fetch

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/caplv/caplv/operator/artifact/fault"
)

// Source describes one file: where it is, how to be let in, and which bytes are expected.
type Source struct {
	// Location is an HTTPS, an OCI or an S3.
	Location Location
	// Credentials may be empty, for reading anonymously.
	Credentials Credentials
	// SHA256 is the digest of the decompressed file in hexadecimal, or empty, with which whatever the server has is taken.
	SHA256 string
	// InsecureSkipTLSVerify accepts any certificate.
	InsecureSkipTLSVerify bool
	// MaxSize limits the decompressed file's size in bytes. 0 means the cache's limit.
	MaxSize int64
	// Fields are the paths of fields that errors name.
	Fields map[fault.Part]string
}

// Location is where a file is.
type Location interface {
	// String names the place for people, without anything secret.
	String() string
	transport() string
}

// HTTPS is a file on an HTTPS server.
type HTTPS struct {
	URL string
}

// OCI is a layer of an artifact in a registry.
type OCI struct {
	// Reference is REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@sha256:DIGEST.
	Reference string
	// Title is the layer's org.opencontainers.image.title. It may be empty when the artifact has a single layer.
	Title string
	// Platform is OS/ARCHITECTURE[/VARIANT], which matters only where the reference is an index of several platforms. The default is that
	// of this process.
	Platform string
	// PlainHTTP talks without TLS.
	PlainHTTP bool
}

// S3 is an object in a bucket.
type S3 struct {
	// Endpoint is HOST[:PORT].
	Endpoint, Region, Bucket, Key string
	// PathStyle puts the bucket into the path. Otherwise it is put where stores of that name have it.
	PathStyle bool
	// PlainHTTP talks without TLS.
	PlainHTTP bool
}

func (l HTTPS) String() string { return redact(l.URL) }
func (l OCI) String() string   { return l.Reference }
func (l S3) String() string    { return fmt.Sprintf("s3://%s/%s at %s", l.Bucket, l.Key, l.Endpoint) }

func (HTTPS) transport() string { return "https" }
func (OCI) transport() string   { return "oci" }
func (S3) transport() string    { return "s3" }

// Transport is the name of a source's transport: https, oci or s3.
func (s Source) Transport() string { return s.Location.transport() }

// Credentials are what a server asks for. They never show in a text.
type Credentials struct {
	// Username and Password are for HTTPS and OCI.
	Username, Password string
	// IdentityToken and RegistryToken are for OCI: a refresh token, and one that is sent as it is.
	IdentityToken, RegistryToken string
	// AccessKeyID, SecretAccessKey and SessionToken are for S3.
	AccessKeyID, SecretAccessKey, SessionToken string
}

// String hides them.
func (c Credentials) String() string {
	if c == (Credentials{}) {
		return "none"
	}
	return "hidden"
}

// GoString hides them.
func (c Credentials) GoString() string { return "fetch.Credentials{" + c.String() + "}" }

// MarshalText hides them from JSON and from structured logs.
func (c Credentials) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// Key identifies the place and how far it is trusted. Equal keys fetch the same bytes, if the server lets in.
func (s Source) Key() string {
	text, err := json.Marshal([]any{s.Location.transport(), s.Location, s.InsecureSkipTLSVerify})
	if err != nil {
		panic(err) // Strings and booleans.
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Version is what a server says about the bytes that it sends, and what a later request is compared with.
type Version struct {
	// ETag and LastModified are the validators, as they were sent.
	ETag         string `json:"etag,omitempty"`
	LastModified string `json:"lastModified,omitempty"`
	// Blob is the digest of the transferred bytes, sha256:HEX, where the transport has one.
	Blob string `json:"blob,omitempty"`
	// Manifest is the digest of the OCI manifest that led to Blob.
	Manifest string `json:"manifest,omitempty"`
	// Size is the number of bytes that are transferred, or -1.
	Size int64 `json:"size"`
	// Resumable says that the validators identify bytes, so that a second part can be joined to a first one.
	Resumable bool `json:"resumable,omitempty"`
}

// Same says whether both versions have the same bytes, as far as the server says. Without validators they never have.
func (v Version) Same(other Version) bool {
	if v.Size != other.Size && v.Size >= 0 && other.Size >= 0 {
		return false
	}
	switch {
	case v.Blob != "" || other.Blob != "":
		return v.Blob == other.Blob
	case v.ETag != "" || other.ETag != "":
		return v.ETag == other.ETag
	default:
		return v.LastModified != "" && v.LastModified == other.LastModified
	}
}
