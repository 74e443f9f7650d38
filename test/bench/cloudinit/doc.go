// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cloudinit holds a test that gives the images of operator/bootstrap to the real cloud-init.
package cloudinit
