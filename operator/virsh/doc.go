// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package virsh gives typed libvirt operations over a connection to a host. It knows nothing of Kubernetes.
//
// One long-lived virsh process a host, started by the first operation and ended when none has come for a while, executes
// everything. With libvirt 9.0 and its test driver, an observation takes 2 to 3 ms in a running virsh and 13 to 20 times as long with
// a virsh of its own (BenchmarkObserve prints both for the machine at hand); over SSH, a session for each comes on top. The
// remote command is a constant; what comes from an object is only ever read by virsh's own parser, quoted, or travels as base64
// into a file. Reading commands are written in one go, changing ones one at a time up to the first failure.
//
// What exists is decided by listings, also after a change that failed: virsh says "failed to get domain" as well when it
// has just lost the daemon. Texts of virsh's own half are stable under LC_ALL=C; those of the daemon's half follow the host's
// language and only refine an error that has happened anyway. After anything that leaves doubts (a lost daemon, an end of the
// context, an output without an end) the process is dropped. Reading is then tried once more, if the process was an old one; a
// change never is.
package virsh
