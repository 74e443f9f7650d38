// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import corev1 "k8s.io/api/core/v1"

// Slim takes out of a Node what no reconciler reads, before it goes into the cache: the lists of images, and who manages which field.
func Slim(o any) (any, error) {
	if node, ok := o.(*corev1.Node); ok {
		node.ManagedFields = nil
		node.Status.Images = nil
	}
	return o, nil
}
