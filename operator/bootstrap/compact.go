// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"

	types "github.com/coreos/ignition/v2/config/v3_1/types"
)

// Delivery is how an Ignition config travels to the guest.
type Delivery string

const (
	// Plain is the config itself.
	Plain Delivery = "plain"
	// Compact is a small config that the guest replaces with the real one, which it holds compressed. A guest reads fw_cfg
	// in quadratic time: every byte that is saved here is saved often. Where the spec version has no compressed configs
	// (before 3.1.0), or where it would save nothing, the result is the same as Plain.
	Compact Delivery = "compact"
)

// compressible reports whether references to configs can be compressed in a spec version. In spec 2 only 2.4.0 knows that,
// which few guests have; there it stays unused.
func compressible(version string) bool {
	return version[0] == '3' && version != "3.0.0"
}

// compact wraps a config of a compressible version, if that makes it smaller.
func compact(config []byte, version string) []byte {
	// The hash is that of the decompressed config, so that it covers the decompression too. sha256 is known to all these
	// versions, and half as long as sha512.
	sum := sha256.Sum256(config)
	wrapper := types.Config{Ignition: types.Ignition{Version: version, Config: types.IgnitionConfig{Replace: types.Resource{
		Source:       new("data:;base64," + base64.StdEncoding.EncodeToString(compress(config))),
		Compression:  new("gzip"),
		Verification: types.Verification{Hash: new("sha256-" + hex.EncodeToString(sum[:]))},
	}}}}
	if wrapped := mustEncode(wrapper); len(wrapped) < len(config) {
		return wrapped
	}
	return config
}

// compress returns data in gzip's format, without name and time: the same bytes for the same data.
func compress(data []byte) []byte {
	var out bytes.Buffer
	// Neither can fail: the level is valid, and a buffer takes every byte.
	writer, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		panic(err)
	}
	if _, err := writer.Write(data); err != nil {
		panic(err)
	}
	if err := writer.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}
