// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// RemediationFinalizer lets the operator take back what it asks of a machine that has become healthy.
const RemediationFinalizer = "libvirtremediation.infrastructure.cluster.x-k8s.io"

// RemediationStrategy says what is tried before a Machine is given back.
type RemediationStrategy struct {
	// type is what is done to the domain: PowerCycle ends it, also while its guest runs, and starts it; Restart only starts
	// what has ended. Both leave alone what was suspended or undefined on the host. Default: PowerCycle.
	// +optional
	// +kubebuilder:default=PowerCycle
	Type RestartType `json:"type,omitempty"`

	// retryLimit is how often that is tried again when the first time was to no avail. Then the Machine is given back.
	// Default: 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	RetryLimit *int32 `json:"retryLimit,omitempty"`

	// timeoutSeconds is how long the machine has to become healthy after the domain was started, in seconds, and how long
	// an attempt may take before that. The guest has to boot in it, and its Node to become ready. Default: 600.
	// +optional
	// +kubebuilder:default=600
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
}

// LibvirtRemediationSpec says how an unhealthy machine is helped.
type LibvirtRemediationSpec struct {
	// strategy is what is tried before the Machine is given back.
	// +optional
	// +kubebuilder:default={}
	Strategy RemediationStrategy `json:"strategy,omitzero"`
}

// LibvirtRemediationStatus is what has been tried.
type LibvirtRemediationStatus struct {
	// conditions are Remediating and Paused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// attempts is how often the domain's restart was asked for.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Attempts int32 `json:"attempts,omitempty"`

	// lastAttemptTime is when that was asked for last.
	// +optional
	LastAttemptTime *metav1.Time `json:"lastAttemptTime,omitempty"`
}

// LibvirtRemediation helps one unhealthy Machine of the same name: its domain is power-cycled, and if that does not make it
// healthy, the Machine is given back. A MachineHealthCheck whose spec.remediation.templateRef names a LibvirtRemediationTemplate
// creates it, and deletes it when the Machine is healthy.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=libvirtremediations,scope=Namespaced,categories=cluster-api,shortName=lvr
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.metadata.labels['cluster\.x-k8s\.io/cluster-name']`
// +kubebuilder:printcolumn:name="Strategy",type=string,JSONPath=`.spec.strategy.type`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="Remediating")].reason`
// +kubebuilder:printcolumn:name="Attempts",type=integer,JSONPath=`.status.attempts`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type LibvirtRemediation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says how the machine is helped.
	// +optional
	// +kubebuilder:default={}
	Spec LibvirtRemediationSpec `json:"spec,omitzero"`

	// status is what has been tried.
	// +optional
	Status LibvirtRemediationStatus `json:"status,omitzero"`
}

// GetConditions returns the conditions of the remediation.
func (r *LibvirtRemediation) GetConditions() []metav1.Condition { return r.Status.Conditions }

// SetConditions replaces the conditions of the remediation.
func (r *LibvirtRemediation) SetConditions(conditions []metav1.Condition) {
	r.Status.Conditions = conditions
}

// LibvirtRemediationList is a list of LibvirtRemediations.
//
// +kubebuilder:object:root=true
type LibvirtRemediationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []LibvirtRemediation `json:"items"`
}

// LibvirtRemediationTemplateResource is what LibvirtRemediations are made from.
type LibvirtRemediationTemplateResource struct {
	// metadata holds labels and annotations for the LibvirtRemediations.
	// +optional
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitzero"`

	// spec is that of the LibvirtRemediations.
	// +optional
	// +kubebuilder:default={}
	Spec LibvirtRemediationSpec `json:"spec,omitzero"`
}

// LibvirtRemediationTemplateSpec holds the template.
type LibvirtRemediationTemplateSpec struct {
	// template is what LibvirtRemediations are made from. A change applies to those that are made from then on.
	// +required
	Template LibvirtRemediationTemplateResource `json:"template"`
}

// LibvirtRemediationTemplate says how MachineHealthChecks that name it have machines helped.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=libvirtremediationtemplates,scope=Namespaced,categories=cluster-api,shortName=lvrt
// +kubebuilder:metadata:labels={"cluster.x-k8s.io/v1beta2=v1alpha1","clusterctl.cluster.x-k8s.io/move="}
// +kubebuilder:printcolumn:name="Strategy",type=string,JSONPath=`.spec.template.spec.strategy.type`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type LibvirtRemediationTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec holds the template.
	// +required
	Spec LibvirtRemediationTemplateSpec `json:"spec"`
}

// LibvirtRemediationTemplateList is a list of LibvirtRemediationTemplates.
//
// +kubebuilder:object:root=true
type LibvirtRemediationTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []LibvirtRemediationTemplate `json:"items"`
}

// The condition of a LibvirtRemediation and its reasons. The Machine's condition ExternallyRemediated has the same reason and
// message while there is a LibvirtRemediation.
const (
	// RemediatingCondition is True while the machine may still become healthy, and False when nothing more is tried.
	RemediatingCondition = "Remediating"

	// RestartingDomainReason surfaces while the domain's restart is asked for; the message says what stands in its way.
	RestartingDomainReason = "RestartingDomain"
	// WaitingForHealthReason surfaces while the domain runs again, and the MachineHealthCheck has yet to find the machine healthy.
	WaitingForHealthReason = "WaitingForHealth"
	// GivenBackToOwnerReason surfaces when the Machine's owner, such as a MachineSet, was asked to replace it.
	GivenBackToOwnerReason = "GivenBackToOwner"
	// MachineDeletingReason surfaces while the Machine is being deleted, by the operator or somebody else.
	MachineDeletingReason = "MachineDeleting"
	// MachineNotFoundReason surfaces when no Machine owns the LibvirtRemediation, or it does not exist any more.
	MachineNotFoundReason = "MachineNotFound"
	// NotALibvirtMachineReason surfaces when the Machine is another provider's; nothing is done.
	NotALibvirtMachineReason = "NotALibvirtMachine"
)
