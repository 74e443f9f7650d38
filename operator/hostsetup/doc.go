// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostsetup decides how a host is brought to what spec.bootstrap of its LibvirtHost wants: what is to be done next, what is asked of who runs
// playbooks, and what conditions say of it. It does no I/O; the reconciler of LibvirtHosts does.
package hostsetup
