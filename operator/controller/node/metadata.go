// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"maps"
	"slices"
	"strings"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// applyMetadata makes the labels and annotations of a Node what a machine declares, and returns them. A key that is declared is
// CAPLV's from then on, whoever has set it before; one that is not declared any more is removed if CAPLV's books have it; every other
// key stays as it is. The books are two annotations of the Node: keys, sorted, with commas between them.
func applyMetadata(labels, annotations map[string]string, spec *infrav1.LibvirtMachineSpec) (newLabels, newAnnotations map[string]string) {
	newAnnotations = apply(annotations, declared(spec.NodeAnnotations), annotations[infrav1.ManagedAnnotationsAnnotation])
	newLabels = apply(labels, declared(spec.NodeLabels), annotations[infrav1.ManagedLabelsAnnotation])
	book(newAnnotations, infrav1.ManagedLabelsAnnotation, spec.NodeLabels)
	book(newAnnotations, infrav1.ManagedAnnotationsAnnotation, spec.NodeAnnotations)
	return newLabels, newAnnotations
}

// apply sets what is declared and removes what only the books have.
func apply(current, declared map[string]string, books string) map[string]string {
	result := maps.Clone(current)
	if result == nil {
		result = map[string]string{}
	}
	for key := range strings.SplitSeq(books, ",") {
		if key = strings.TrimSpace(key); !kept(key) {
			delete(result, key)
		}
	}
	maps.Copy(result, declared)
	return result
}

// declared leaves out what CAPLV itself keeps on Nodes. Admission refuses such keys, where it is on.
func declared(keys map[string]string) map[string]string {
	result := maps.Clone(keys)
	maps.DeleteFunc(result, func(key, _ string) bool { return kept(key) })
	return result
}

func kept(key string) bool { return strings.HasPrefix(key, infrav1.GroupVersion.Group+"/") }

// book writes down the keys that are declared.
func book(annotations map[string]string, name string, keys map[string]string) {
	keys = declared(keys)
	if len(keys) == 0 {
		delete(annotations, name)
		return
	}
	annotations[name] = strings.Join(slices.Sorted(maps.Keys(keys)), ",")
}
