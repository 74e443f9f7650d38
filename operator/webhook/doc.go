// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhook is admission: it refuses objects that their author can know to be wrong from the objects themselves.
//
// The schemas of the CRDs come first and need no webhook: types, patterns, and that a machine's spec is fixed at creation
// are in api/v1alpha1. What is here is what a schema cannot say: arithmetic on addresses, names that depend on other
// fields or on the namespace, the syntax of labels, and one machine a host where another one is already visible. What only
// a look at the world can tell (a host that is busy with a machine that is being deleted, a host that does not exist yet,
// an address that is taken) is a condition, because some creators never try a second time.
//
// There is no mutating webhook. Every constant default is in the schemas. A default that depends on other fields, such as
// rootDisk.baseImagePool, is applied where it is read: written into the object it would belong to no field manager, it
// would have to be the same for every version of the operator, as the field is fixed, and it would say something that the
// author did not. For the same reason a MAC address stays as it was written.
//
// A webhook must not stand in the way of an object that is going or that was accepted earlier: deletion is never refused,
// objects that are being deleted are not looked at, and an update is only judged by what it makes worse. The match
// conditions in operator/config/webhook keep such requests from the webhook altogether, so that finalizers, owners, labels
// and status can be written while no operator runs. Nothing here has side effects.
package webhook
