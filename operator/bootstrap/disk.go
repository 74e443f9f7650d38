// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import "bytes"

// diskBlock is what a disk's size is a multiple of, in bytes: the block size of the host's storage, and eight sectors of the guest's.
const diskBlock = 4096

// Disk makes a config fit for a disk, from which a guest reads whole sectors, up to the end. It is filled up with line breaks, which mean nothing in JSON;
// zeroes would be a syntax error.
func Disk(config []byte) []byte {
	padding := (diskBlock - len(config)%diskBlock) % diskBlock
	return append(bytes.Clone(config), bytes.Repeat([]byte("\n"), padding)...)
}
