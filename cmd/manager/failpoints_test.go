// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !failpoints

package main

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestAManagerHasNoFailPoints(t *testing.T) {
	t.Setenv("CAPLV_FAILPOINT_FILE", t.TempDir()+"/points")
	NewWithT(t).Expect(failPoint()).To(BeNil(), "without its build tag, nothing in the environment may end the manager")
}
