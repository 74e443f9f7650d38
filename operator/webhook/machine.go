// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/controller/index"
	"github.com/caplv/caplv/operator/naming"
)

const (
	providerIDScheme = "libvirt://"
	// rootDiskName would give a data disk the volume of the root disk.
	rootDiskName = "root"
	// lookupTimeout bounds the look at other machines, well below the webhook's own 10 seconds.
	lookupTimeout = 3 * time.Second
)

// +kubebuilder:webhook:path=/validate-infrastructure-cluster-x-k8s-io-v1alpha1-libvirtmachine,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,sideEffects=None,groups=infrastructure.cluster.x-k8s.io,resources=libvirtmachines,verbs=create;update,versions=v1alpha1,name=validation.libvirtmachine.infrastructure.cluster.x-k8s.io,admissionReviewVersions=v1,timeoutSeconds=10

// Machine validates LibvirtMachines.
type Machine struct {
	// Client lists machines by index.MachineByHost; it may read from a cache.
	Client client.Reader
	// APIReader reads what is stored now.
	APIReader client.Reader
}

// ValidateCreate returns all problems of a new machine as one error.
func (m *Machine) ValidateCreate(ctx context.Context, lm *infrav1.LibvirtMachine) (admission.Warnings, error) {
	problems := validateMachine(lm)
	taken, warnings := m.validateHostIsFree(ctx, lm)
	return warnings, invalid("LibvirtMachine", lm.Name, append(problems, taken...))
}

// ValidateUpdate returns the problems that an update adds. That the rest of the spec stays as it is, the schema ensures.
func (m *Machine) ValidateUpdate(_ context.Context, before, lm *infrav1.LibvirtMachine) (admission.Warnings, error) {
	if !lm.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	return nil, invalid("LibvirtMachine", lm.Name, newProblems(validateMachine(lm), validateMachine(before)))
}

// ValidateDelete lets every machine go.
func (m *Machine) ValidateDelete(context.Context, *infrav1.LibvirtMachine) (admission.Warnings, error) {
	return nil, nil
}

// validateMachine returns what is wrong with a machine by itself.
func validateMachine(lm *infrav1.LibvirtMachine) field.ErrorList {
	spec := field.NewPath("spec")
	problems := validateMachineName(lm)
	problems = append(problems, validateReference(spec.Child("hostRef", "name"), "LibvirtHost", lm.Spec.HostRef.Name)...)
	if id := lm.Spec.ProviderID; id != "" && (!strings.HasPrefix(id, providerIDScheme) || id == providerIDScheme) {
		problems = append(problems, field.Invalid(spec.Child("providerID"), id,
			"the provider ID of a LibvirtMachine begins with "+providerIDScheme+"; leave the field out, CAPLV sets it"))
	}
	for i, disk := range lm.Spec.AdditionalDisks {
		if disk.Name == rootDiskName {
			problems = append(problems, field.Invalid(spec.Child("additionalDisks").Index(i).Child("name"), disk.Name,
				"this is the name of the root disk; choose another one"))
		}
	}
	problems = append(problems, validateNetwork(spec.Child("network"), &lm.Spec.Network)...)
	return append(problems, validateNodeMetadata(spec, &lm.Spec)...)
}

// validateMachineName checks that the machine's hostname, Node and domain can be named after its Cluster. The machine's own
// name and its namespace always can.
func validateMachineName(lm *infrav1.LibvirtMachine) field.ErrorList {
	cluster, labelled := lm.Labels[clusterv1.ClusterNameLabel]
	if !labelled {
		return nil // Whoever makes the Machine its owner sets it.
	}
	if len(validation.IsDNS1123Subdomain(cluster)) == 0 && len(validation.IsDNS1123Label(naming.Machine(lm.Namespace, cluster, lm.Name))) == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "labels").Key(clusterv1.ClusterNameLabel), cluster,
		"no Cluster can have this name, and the machine's Node cannot be named after it; give the name of the Cluster, in lower-case letters, digits, '-' and '.'")}
}

// validateHostIsFree refuses a machine whose host another one uses already. That is as much as can be seen from here: two
// machines that are created at once, or in two namespaces, meet at the claim on the host, and one that is being deleted
// will be gone. A look that fails is therefore no reason to refuse anything.
func (m *Machine) validateHostIsFree(ctx context.Context, lm *infrav1.LibvirtMachine) (field.ErrorList, admission.Warnings) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	host := lm.Spec.HostRef.Name
	other, err := m.otherMachine(ctx, lm)
	switch {
	case err != nil:
		return nil, admission.Warnings{fmt.Sprintf(
			"spec.hostRef.name: could not look whether another machine uses LibvirtHost %s; if one does, this machine waits for it", host)}
	case other != "":
		return field.ErrorList{field.Invalid(field.NewPath("spec", "hostRef", "name"), host, fmt.Sprintf(
			"LibvirtMachine %s uses this host already, and a host runs one machine at a time; name another LibvirtHost, or delete %s first", other, other))}, nil
	}
	return nil, nil
}

// otherMachine returns the name of a machine that uses the host of lm and is not being deleted; empty when there is none.
func (m *Machine) otherMachine(ctx context.Context, lm *infrav1.LibvirtMachine) (string, error) {
	seen := &infrav1.LibvirtMachineList{}
	if err := m.Client.List(ctx, seen, client.InNamespace(lm.Namespace), client.MatchingFields{index.MachineByHost: lm.Spec.HostRef.Name}); err != nil {
		return "", err
	}
	for i := range seen.Items {
		if seen.Items[i].Name == lm.Name || !seen.Items[i].DeletionTimestamp.IsZero() {
			continue
		}
		// The list may be older than the deletion that made room for this machine.
		now := &infrav1.LibvirtMachine{}
		err := m.APIReader.Get(ctx, client.ObjectKeyFromObject(&seen.Items[i]), now)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return "", err
		case now.DeletionTimestamp.IsZero() && now.Spec.HostRef == lm.Spec.HostRef:
			return now.Name, nil
		}
	}
	return "", nil
}
