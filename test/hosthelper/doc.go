// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hosthelper tests the root-owned helper of the hosts, roles/host_helper/files/caplv-hostctl, as root of a mount
// namespace of its own: /run is an empty tmpfs there and everything else is read-only, so that the machine is not touched.
package hosthelper
