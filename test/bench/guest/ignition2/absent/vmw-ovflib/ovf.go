// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ovf stands in for the parser of VMware's OVF environment, which a test guest does not have.
package ovf

import "errors"

// Environment has the member that Ignition reads.
type Environment struct{ Properties map[string]string }

// ReadEnvironment always fails.
func ReadEnvironment([]byte) (Environment, error) {
	return Environment{}, errors.New("this build of Ignition does not support VMware")
}
