// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package session finds out whether a host is set up for libvirt's session mode, in which QEMU runs as the account that SSH
// connects as. It knows nothing of Kubernetes.
//
// One command gathers facts with the account's rights; what they mean is decided here. What is missing comes with the way to
// mend it, because most of it needs somebody who is root.
package session
