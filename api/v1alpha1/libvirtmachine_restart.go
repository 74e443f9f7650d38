// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RestartRequestAnnotation on a LibvirtMachine asks for its domain to be started again. Its value is TYPE/ID: the type is
// PowerCycle or Restart, and each ID, up to 63 letters, digits, dashes and dots, is served once.
const RestartRequestAnnotation = "infrastructure.cluster.x-k8s.io/libvirt-restart-request"

// RestartType says how a domain is started again.
// +kubebuilder:validation:Enum=PowerCycle;Restart
type RestartType string

const (
	// RestartTypePowerCycle ends the domain, as by pulling the plug, also while its guest runs, and starts it.
	RestartTypePowerCycle RestartType = "PowerCycle"
	// RestartTypeRestart starts a domain that has ended, and leaves one alone that runs.
	RestartTypeRestart RestartType = "Restart"
)

// RestartRequestValue is the annotation's value for a request.
func RestartRequestValue(how RestartType, id string) string { return string(how) + "/" + id }

// ParseRestartRequest returns what an annotation's value asks for; false if it asks for nothing that is known.
func ParseRestartRequest(value string) (how RestartType, ok bool) {
	kind, id, _ := strings.Cut(value, "/")
	if how = RestartType(kind); how != RestartTypePowerCycle && how != RestartTypeRestart {
		return "", false
	}
	unknown := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.'
	}
	return how, id != "" && len(id) <= 63 && !strings.ContainsFunc(id, unknown)
}

// RestartRequestStatus is what became of the latest request.
type RestartRequestStatus struct {
	// request is the annotation's value.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Request string `json:"request"`

	// endedTime is when the domain had ended for the request, or was found to have. It is started from then on, whatever
	// becomes of the annotation.
	// +optional
	EndedTime *metav1.Time `json:"endedTime,omitempty"`

	// completionTime is when the domain was seen to run as the request asked.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`

	// message says why the domain does not run so yet; empty when it does.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Message string `json:"message,omitempty"`
}

// Pending says whether the domain is still to be started.
func (s *RestartRequestStatus) Pending() bool {
	return s != nil && s.EndedTime != nil && s.CompletionTime == nil
}

// Completed says whether this request was served.
func (s *RestartRequestStatus) Completed(request string) bool {
	return s != nil && s.Request == request && s.CompletionTime != nil
}
