// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hosts gives the reconcilers their hosts: it turns a LibvirtHost and its Secret into a verified connection with
// typed libvirt operations, and errors of every layer below into the reasons and messages of conditions.
package hosts
