// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package virsh gives typed libvirt operations over a connection to a host. It knows nothing of Kubernetes.
//
// One long-lived virsh process a host, started by the first operation and ended when none has come for a while, executes
// everything: a new virsh costs some 40 ms, a command in a running one 1 to 2 ms (BenchmarkObserve prints the ratio on the machine at
// hand). The remote command is a constant; what comes from an object is only ever read by virsh's own parser, quoted, or
// travels as base64 into a file. Reading commands are written in one go, changing ones one at a time up to the first failure.
//
// What exists is decided by listings. Texts of virsh's own half are stable under LC_ALL=C; those of the daemon's half
// follow the host's language and only refine an error that has happened anyway.
package virsh
