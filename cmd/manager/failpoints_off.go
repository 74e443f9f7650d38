// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !failpoints

package main

import "github.com/caplv/caplv/operator/controller/machine"

// failPoint is what the machine reconciler tells of its fail points: nobody, unless the build has the tag failpoints.
func failPoint() func(machine.FailPoint) { return nil }
