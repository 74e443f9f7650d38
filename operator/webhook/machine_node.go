// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// keptByClusterAPI are annotations of a Node that Cluster API's core writes, and looks Machines up by.
var keptByClusterAPI = []string{
	clusterv1.ClusterNameAnnotation, clusterv1.ClusterNamespaceAnnotation, clusterv1.MachineAnnotation,
	clusterv1.OwnerKindAnnotation, clusterv1.OwnerNameAnnotation,
	clusterv1.LabelsFromMachineAnnotation, clusterv1.AnnotationsFromMachineAnnotation,
}

// validateNodeMetadata checks that a Node can have these labels and annotations, and that they take nothing away from those
// who keep their books there. Any other key is allowed, unlike in a kubelet's own labels.
func validateNodeMetadata(spec *field.Path, machine *infrav1.LibvirtMachineSpec) field.ErrorList {
	var problems field.ErrorList
	labels := spec.Child("nodeLabels")
	for _, key := range slices.Sorted(maps.Keys(machine.NodeLabels)) {
		value := machine.NodeLabels[key]
		at := labels.Key(key)
		for _, message := range validation.IsQualifiedName(key) {
			problems = append(problems, field.Invalid(at, key, "the key of a label "+rule(message)))
		}
		for _, message := range validation.IsValidLabelValue(value) {
			problems = append(problems, field.Invalid(at, value, "the value of a label "+rule(message)))
		}
		problems = append(problems, validateNodeKey(at, key)...)
	}
	annotations := spec.Child("nodeAnnotations")
	for _, key := range slices.Sorted(maps.Keys(machine.NodeAnnotations)) {
		at := annotations.Key(key)
		// The syntax of an annotation's key knows no upper case, see apivalidation.ValidateAnnotations.
		for _, message := range validation.IsQualifiedName(strings.ToLower(key)) {
			problems = append(problems, field.Invalid(at, key, "the key of an annotation "+rule(message)))
		}
		problems = append(problems, validateNodeKey(at, key)...)
	}
	if err := apivalidation.ValidateAnnotationsSize(machine.NodeAnnotations); err != nil {
		problems = append(problems, field.TooLong(annotations, "", apivalidation.TotalAnnotationSizeLimitB))
	}
	return problems
}

// validateNodeKey refuses the keys that others keep.
func validateNodeKey(at *field.Path, key string) field.ErrorList {
	var keeper string
	switch {
	case strings.HasPrefix(key, infrav1.GroupVersion.Group+"/"):
		keeper = "CAPLV"
	case slices.Contains(keptByClusterAPI, key):
		keeper = "Cluster API"
	default:
		return nil
	}
	return field.ErrorList{field.Invalid(at, key, fmt.Sprintf("%s writes this key of the Node itself; remove it, or choose another key", keeper))}
}

// rule makes the end of a sentence of what apimachinery says.
func rule(message string) string {
	for _, subject := range []string{"a valid label ", "name part ", "prefix part "} {
		if rest, ok := strings.CutPrefix(message, subject); ok && subject != "a valid label " {
			return "has a " + strings.TrimSpace(subject) + " that " + rest
		} else if ok {
			return rest
		}
	}
	return message
}
