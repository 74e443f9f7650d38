// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/controller/index"
	"github.com/caplv/caplv/operator/hosturi"
)

// namedMachines is how many machines a warning names.
const namedMachines = 5

// +kubebuilder:webhook:path=/validate-infrastructure-cluster-x-k8s-io-v1alpha1-libvirthost,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,sideEffects=None,groups=infrastructure.cluster.x-k8s.io,resources=libvirthosts,verbs=create;update,versions=v1alpha1,name=validation.libvirthost.infrastructure.cluster.x-k8s.io,admissionReviewVersions=v1,timeoutSeconds=10
// +kubebuilder:webhook:path=/validate-infrastructure-cluster-x-k8s-io-v1alpha1-libvirthost,mutating=false,failurePolicy=ignore,matchPolicy=Equivalent,sideEffects=None,groups=infrastructure.cluster.x-k8s.io,resources=libvirthosts,verbs=delete,versions=v1alpha1,name=deletion.libvirthost.infrastructure.cluster.x-k8s.io,admissionReviewVersions=v1,timeoutSeconds=5

// Host validates LibvirtHosts. Their deletion is only warned about, by a webhook whose absence is ignored.
type Host struct {
	// Client lists machines by index.MachineByHost; it may read from a cache.
	Client client.Reader
}

// ValidateCreate returns all problems of a new host as one error, and warns about what is allowed and seldom wanted.
func (h *Host) ValidateCreate(_ context.Context, lh *infrav1.LibvirtHost) (admission.Warnings, error) {
	return warnAboutHost(nil, lh), invalid("LibvirtHost", lh.Name, validateHost(lh))
}

// ValidateUpdate returns the problems that an update adds.
func (h *Host) ValidateUpdate(_ context.Context, before, lh *infrav1.LibvirtHost) (admission.Warnings, error) {
	if !lh.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	return warnAboutHost(before, lh), invalid("LibvirtHost", lh.Name, newProblems(validateHost(lh), validateHost(before)))
}

// ValidateDelete lets every host go, and says when its finalizer will keep it for a while.
func (h *Host) ValidateDelete(ctx context.Context, lh *infrav1.LibvirtHost) (admission.Warnings, error) {
	machines := &infrav1.LibvirtMachineList{}
	err := h.Client.List(ctx, machines, client.InNamespace(lh.Namespace), client.MatchingFields{index.MachineByHost: lh.Name})
	if err != nil || len(machines.Items) == 0 {
		return nil, nil //nolint:nilerr // There is a warning less; deletion goes on.
	}
	var names []string
	for i := range machines.Items {
		names = append(names, machines.Items[i].Name)
	}
	slices.Sort(names)
	if more := len(names) - namedMachines; more > 0 {
		names = append(names[:namedMachines], fmt.Sprintf("and %d more", more))
	}
	return admission.Warnings{fmt.Sprintf("LibvirtHost %s stays until its machines are gone; delete these LibvirtMachines too: %s",
		lh.Name, strings.Join(names, ", "))}, nil
}

// warnAboutHost warns about what a creation (before is nil) or an update chooses anew.
func warnAboutHost(before, lh *infrav1.LibvirtHost) admission.Warnings {
	var warnings admission.Warnings
	if lh.Spec.HostKeyFingerprint == "" && (before == nil || before.Spec.HostKeyFingerprint != "") {
		warnings = append(warnings, "spec.hostKeyFingerprint is not set: the first key that the host shows is trusted; "+
			"set it to what this prints: ssh-keyscan HOST | ssh-keygen -lf -")
	}
	if lh.Spec.VirtType == infrav1.VirtTypeQEMU && (before == nil || before.Spec.VirtType != infrav1.VirtTypeQEMU) {
		warnings = append(warnings, "spec.virtType is qemu: machines are emulated in software, which is many times slower; use kvm where the host has it")
	}
	return warnings
}

// validateHost returns what is wrong with a host by itself.
func validateHost(lh *infrav1.LibvirtHost) field.ErrorList {
	spec := field.NewPath("spec")
	var problems field.ErrorList
	if _, err := hosturi.Parse(lh.Spec.URI); err != nil {
		// The schema has refused a URI with a password.
		problems = append(problems, field.Invalid(spec.Child("uri"), lh.Spec.URI, err.Error()))
	}
	problems = append(problems, validateReference(spec.Child("secretRef", "name"), "Secret", lh.Spec.SecretRef.Name)...)
	problems = append(problems, validateHostPath(spec.Child("firmwarePath"), lh.Spec.FirmwarePath)...)
	problems = append(problems, validateHostPath(spec.Child("nvramTemplatePath"), lh.Spec.NVRAMTemplatePath)...)
	if lh.Spec.NVRAMTemplatePath != "" && lh.Spec.FirmwarePath == "" {
		problems = append(problems, field.Invalid(spec.Child("nvramTemplatePath"), lh.Spec.NVRAMTemplatePath,
			"a template of variables belongs to a firmware; set firmwarePath too, or remove nvramTemplatePath and let libvirt select both"))
	}
	return append(problems, validateBootstrap(lh)...)
}
