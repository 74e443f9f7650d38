// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// invalid is the answer that holds all problems of an object; nil when there are none.
func invalid(kind, name string, problems field.ErrorList) error {
	if len(problems) == 0 {
		return nil
	}
	return apierrors.NewInvalid(infrav1.GroupVersion.WithKind(kind).GroupKind(), name, problems)
}

// newProblems are those that an object did not have before an update. An object that was accepted under other rules can
// so be changed where that does not make it worse.
func newProblems(now, before field.ErrorList) field.ErrorList {
	known := map[string]bool{}
	for _, p := range before {
		known[p.Error()] = true
	}
	return slices.DeleteFunc(now, func(p *field.Error) bool { return known[p.Error()] })
}

// validateReference checks that an object of the given kind can have this name. References have no namespace: an object
// can only refer to others in its own.
func validateReference(p *field.Path, kind, name string) field.ErrorList {
	if name == "" || len(validation.IsDNS1123Subdomain(name)) == 0 {
		return nil // The schema refuses an empty one.
	}
	return field.ErrorList{field.Invalid(p, name, fmt.Sprintf(
		"no %s can have this name; give the name of one in the same namespace, in lower-case letters, digits, '-' and '.'", kind))}
}

// validateHostPath checks a path on a host, beyond that it is absolute, which the schema does.
func validateHostPath(p *field.Path, value string) field.ErrorList {
	switch {
	case value == "":
		return nil
	case strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }):
		return field.ErrorList{field.Invalid(p, value, "the path holds characters that are not printable; remove them")}
	case value == "/" || path.Clean(value) != value:
		return field.ErrorList{field.Invalid(p, value, "the path must name something below /, without '.', '..', '//' and a slash at its end; write "+
			suggestedPath(value))}
	}
	return nil
}

func suggestedPath(value string) string {
	if clean := path.Clean(value); clean != "/" {
		return clean
	}
	return "for example /usr/share/caplv"
}
