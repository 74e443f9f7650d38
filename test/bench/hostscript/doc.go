// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostscript tests test/bench/host.sh, host-init.sh, host-listing.sh and guest/build.sh, and with them
// hack/prepare-test-host.sh: that hosts are real, that nothing of them stays, and that the guests
// boot and apply what they are given.
package hostscript
