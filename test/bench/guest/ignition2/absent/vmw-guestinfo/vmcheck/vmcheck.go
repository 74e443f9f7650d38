// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vmcheck stands in for the check for VMware.
package vmcheck

// IsVirtualWorld is always false: a test guest runs on QEMU.
func IsVirtualWorld() bool { return false }
