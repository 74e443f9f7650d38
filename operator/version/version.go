// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version says which version of CAPLV this is.
package version

import "runtime/debug"

// version is set by the linker: -X github.com/caplv/caplv/operator/version.version=v0.1.0.
var version = ""

// String is the released version, or "dev".
func String() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}
