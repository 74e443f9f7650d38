// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation/field"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/domain"
	"github.com/caplv/caplv/operator/hostctl"
)

// maxKernelArgs is how much of its command line an x86 kernel reads, in bytes. It says nothing of what it leaves out.
const maxKernelArgs = 2047

// validateBootArtifacts returns what is wrong with a cluster's boot artifacts, if it has any.
func validateBootArtifacts(p *field.Path, boot *infrav1.BootArtifacts, namespace string) field.ErrorList {
	if boot == nil {
		return nil
	}
	problems := append(validateBootPath(p.Child("hostPath"), boot.HostPath), validateKernelArgs(p.Child("kernelArgs"), boot.KernelArgs)...)
	source := p.Child("source")
	if s := boot.Source.HTTPS; s != nil {
		problems = append(problems, validateCredentials(source.Child("https"), s.CredentialsSecretRef, namespace)...)
	}
	if s := boot.Source.OCI; s != nil {
		problems = append(problems, validateCredentials(source.Child("oci"), s.CredentialsSecretRef, namespace)...)
		problems = append(problems, validateTitles(source.Child("oci"), s)...)
	}
	if s := boot.Source.S3; s != nil {
		problems = append(problems, validateCredentials(source.Child("s3"), s.CredentialsSecretRef, namespace)...)
	}
	return problems
}

// validateBootPath checks what the hosts' helper takes, which is less than what a path can be.
func validateBootPath(p *field.Path, value string) field.ErrorList {
	if problems := validateHostPath(p, value); len(problems) > 0 {
		return problems
	}
	switch {
	case value == "" || hostctl.ValidBootDir(value) && value != "/var/lib/caplv":
		return nil
	case value == "/var/lib/caplv":
		return field.ErrorList{field.Invalid(p, value, "the files need a directory of their own; write /var/lib/caplv/boot")}
	case len(value) > hostctl.MaxBootDir:
		return field.ErrorList{field.TooLong(p, value, hostctl.MaxBootDir)}
	}
	return field.ErrorList{field.Invalid(p, value,
		"the path may have letters, digits, '.', '_' and '-' in each part, and no part may begin with '.' or '-'; write for example /var/lib/caplv/boot")}
}

func validateKernelArgs(p *field.Path, value string) field.ErrorList {
	args := domain.BootArgs(value)
	switch {
	case len(args) > maxKernelArgs:
		return field.ErrorList{field.Invalid(p, fmt.Sprintf("%d bytes", len(args)), fmt.Sprintf(
			"a kernel reads %d bytes of its command line and ignores the rest; shorten it", maxKernelArgs))}
	case strings.ContainsFunc(args, func(r rune) bool { return !unicode.IsPrint(r) }):
		return field.ErrorList{field.Invalid(p, value, "the command line holds characters that are not printable; remove them")}
	}
	return nil
}

// validateTitles refuses one layer for two files: a kernel is no initramfs.
func validateTitles(p *field.Path, s *infrav1.OCIBootArtifacts) field.ErrorList {
	if s.KernelLayerTitle == "" || s.KernelLayerTitle != s.InitramfsLayerTitle {
		return nil
	}
	return field.ErrorList{field.Invalid(p.Child("initramfsLayerTitle"), s.InitramfsLayerTitle,
		"kernel and initramfs are two layers; give the title of the other one")}
}
