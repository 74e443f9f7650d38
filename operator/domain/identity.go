// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"crypto/sha256"
	"net"

	"github.com/google/uuid"
)

// namespace is the UUID under which the UUIDs of all machines are made. It is itself the UUIDv5 of XMLNamespace in the
// namespace for URLs (RFC 9562, section 6.6). It must never change: what exists on hosts is recognised by it.
var namespace = uuid.MustParse("041cd794-28c2-54df-ba23-b72632522768")

// macLength is the length of an Ethernet address in bytes.
const macLength = 6

// UUID returns the UUID of the domain that belongs to the machine whose object has the given UID: a UUIDv5, in lower case.
func UUID(uid string) string { return uuid.NewSHA1(namespace, []byte(uid)).String() }

// PoolUUID returns the UUID of the storage pool that is created for the machine whose object has the given UID.
func PoolUUID(uid string) string { return uuid.NewSHA1(namespace, []byte("pool/"+uid)).String() }

// MAC returns a stable Ethernet address for the machine whose object has the given UID. It is unicast and locally
// administered, and its first byte ends in 2: the quadrant that IEEE 802c leaves to administrators. The digit before it is
// even, so that the address is never one of QEMU's own (52:54:00), from which the tools of the host's owner draw at random.
func MAC(uid string) string {
	digest := sha256.Sum256([]byte(uid))
	mac := net.HardwareAddr(digest[:macLength])
	mac[0] = mac[0]&0xe0 | 0x02
	return mac.String()
}
