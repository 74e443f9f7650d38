// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostscript tests test/bench/host.sh, onboarded.sh, host-listing.sh and guest/build.sh: that hosts are real and are
// what playbooks/onboard_host.yml makes of them, that nothing of them stays, and that the guests boot and apply what they are
// given.
package hostscript
