// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e proves CAPLV end to end: real etcd, kube-apiserver and Cluster API core; the manager as its own process
// under the shipped roles; hosts in namespaces that playbooks/onboard_host.yml has set up, with a real sshd, libvirtd and
// QEMU (software emulation); guests that report on their serial console what they received.
//
// Each test has a host of its own, and ends with the proof that this host is as it was before. Tests that end the operator or
// the sidecar, or that measure, run one by one and first; the others share both, and run side by side.
package e2e
