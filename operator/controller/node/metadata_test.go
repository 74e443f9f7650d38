// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

type keys = map[string]string

func TestMetadataIsApplied(t *testing.T) {
	const labelBooks, annotationBooks = infrav1.ManagedLabelsAnnotation, infrav1.ManagedAnnotationsAnnotation
	for _, row := range []struct {
		name                              string
		labels, annotations               keys
		wantedLabels, wantedAnnotations   keys
		expectLabels, expectedAnnotations keys
	}{
		{"nothing is declared, and nothing changes", keys{"a": "1"}, keys{"b": "2"}, nil, nil, keys{"a": "1"}, keys{"b": "2"}},
		{"a Node without any gets them with the books", nil, nil, keys{"z": "1", "a/b": ""}, keys{"c": "3"},
			keys{"z": "1", "a/b": ""}, keys{"c": "3", labelBooks: "a/b,z", annotationBooks: "c"}},
		{"drift is put back", keys{"a": "x"}, keys{labelBooks: "a,b"}, keys{"a": "1", "b": "2"}, nil, keys{"a": "1", "b": "2"}, keys{labelBooks: "a,b"}},
		{"lost books are written again", keys{"a": "1"}, nil, keys{"a": "1"}, nil, keys{"a": "1"}, keys{labelBooks: "a"}},
		{"a key that is not declared any more is removed", keys{"a": "1", "b": "2"}, keys{"c": "3", labelBooks: "a,b", annotationBooks: "c"}, keys{"a": "1"}, nil,
			keys{"a": "1"}, keys{labelBooks: "a"}},
		{"when nothing is declared any more, the books go", keys{"a": "1", "own": "x"}, keys{labelBooks: "a"}, nil, nil, keys{"own": "x"}, keys{}},
		{"foreign keys stay", keys{"foreign": "x"}, keys{"foreign": "y"}, keys{"a": "1"}, nil, keys{"foreign": "x", "a": "1"}, keys{"foreign": "y", labelBooks: "a"}},
		{"a label and an annotation of the same key are two things", keys{"k": "1"}, keys{"k": "2", labelBooks: "k"}, nil, keys{"k": "3"},
			keys{}, keys{"k": "3", annotationBooks: "k"}},
		{"a declared key becomes CAPLV's", keys{"a": "admin"}, nil, keys{"a": "1"}, nil, keys{"a": "1"}, keys{labelBooks: "a"}},
		{"books with blanks and nothing between commas", keys{"a": "1", "b": "2"}, keys{labelBooks: " a ,, b"}, nil, nil, keys{}, keys{}},
		{"the books cannot be declared", nil, nil, nil, keys{labelBooks: "kubernetes.io/hostname"}, keys{}, keys{}},
		{"the books do not remove themselves", keys{}, keys{annotationBooks: annotationBooks + "," + labelBooks, labelBooks: "a"}, keys{"a": "1"}, nil,
			keys{"a": "1"}, keys{labelBooks: "a"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			spec := &infrav1.LibvirtMachineSpec{NodeLabels: row.wantedLabels, NodeAnnotations: row.wantedAnnotations}
			labels, annotations := applyMetadata(row.labels, row.annotations, spec)
			g.Expect(labels).To(Equal(row.expectLabels))
			g.Expect(annotations).To(Equal(row.expectedAnnotations))

			again, againAnnotations := applyMetadata(labels, annotations, spec)
			g.Expect(again).To(Equal(labels), "a second time, nothing changes")
			g.Expect(againAnnotations).To(Equal(annotations))
		})
	}
}
