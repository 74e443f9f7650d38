// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inventory tests the Ansible inventory over LibvirtHost objects (plugins/inventory/libvirthosts.py) against a real API
// server, with each of the versions of ansible-core that requirements*.txt name.
package inventory
