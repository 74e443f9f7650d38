// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation/field"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/hostsetup"
	"github.com/caplv/caplv/operator/hosturi"
)

var (
	// serviceAccount and poolPath are what the roles accept (roles/service_account, roles/storage_pool).
	serviceAccount = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)
	poolPath       = regexp.MustCompile(`^(/[A-Za-z0-9_.+@-]+){2,}$`)
)

// maxPoolName is the longest name of a pool that the roles accept.
const maxPoolName = 63

// validateBootstrap returns what the roles, or who runs them, would refuse later.
func validateBootstrap(lh *infrav1.LibvirtHost) field.ErrorList {
	b := lh.Spec.Bootstrap
	if b == nil {
		return nil
	}
	spec := field.NewPath("spec")
	path := spec.Child("bootstrap")
	problems := validateReference(path.Child("secretRef", "name"), "Secret", b.SecretRef.Name)
	if uri, err := hosturi.Parse(lh.Spec.URI); err == nil {
		problems = append(problems, validateAccounts(spec, lh, uri)...)
		if len(b.Bridges) > 0 && uri.Path != hosturi.PathSession {
			problems = append(problems, field.Invalid(path.Child("bridges"), b.Bridges,
				"bridges are let in for session mode only; machines of the system's libvirt may use all of them. Leave the field out, or end spec.uri in /session"))
		}
	}
	for i, key := range b.AuthorizedKeys {
		if err := hostsetup.CheckPublicKey(key); err != nil {
			problems = append(problems, field.Invalid(path.Child("authorizedKeys").Index(i), key, err.Error()))
		}
	}
	if len(b.AuthorizedFrom) > 0 && !hasPositive(b.AuthorizedFrom) {
		problems = append(problems, field.Invalid(path.Child("authorizedFrom"), b.AuthorizedFrom,
			"this only excludes, and sshd would let nobody in; add \"*\", or what is allowed"))
	}
	problems = append(problems, validatePools(path.Child("pools"), b.Pools)...)
	return append(problems, validateAWX(path.Child("awx"), b.AWX)...)
}

// validateAccounts checks the service account, which the roles make, and whom Ansible logs in as.
func validateAccounts(spec *field.Path, lh *infrav1.LibvirtHost, uri hosturi.URI) field.ErrorList {
	b := lh.Spec.Bootstrap
	var problems field.ErrorList
	if !serviceAccount.MatchString(uri.User) || uri.User == "root" {
		problems = append(problems, field.Invalid(spec.Child("uri"), lh.Spec.URI, fmt.Sprintf(
			"the roles make no account %q; with spec.bootstrap, the user of the URI is a service account of up to 32 lower-case letters, digits, '_' and '-', and not root", uri.User)))
	}
	if b.User == uri.User {
		problems = append(problems, field.Invalid(spec.Child("bootstrap", "user"), b.User,
			"this is the service account of spec.uri, which may not become root and gets no terminal; name root, or an account that may become root"))
	}
	return problems
}

func hasPositive(sources []string) bool {
	for _, s := range sources {
		if !strings.HasPrefix(s, "!") {
			return true
		}
	}
	return false
}

func validatePools(path *field.Path, pools []infrav1.HostPool) field.ErrorList {
	var problems field.ErrorList
	paths := map[string]bool{}
	for i, pool := range pools {
		if len(pool.Name) > maxPoolName {
			problems = append(problems, field.TooLong(path.Index(i).Child("name"), pool.Name, maxPoolName))
		}
		if pool.Path == "" {
			continue
		}
		at := path.Index(i).Child("path")
		wrong := validateHostPath(at, pool.Path)
		switch {
		case len(wrong) > 0:
			problems = append(problems, wrong...)
		case !poolPath.MatchString(pool.Path):
			problems = append(problems, field.Invalid(at, pool.Path, "a pool's path has two components or more, of letters, digits and _ . + @ -; write for example /srv/caplv"))
		case paths[pool.Path]:
			problems = append(problems, field.Duplicate(at, pool.Path))
		}
		paths[pool.Path] = true
	}
	return problems
}

func validateAWX(path *field.Path, awx *infrav1.AWXBackend) field.ErrorList {
	if awx == nil {
		return nil
	}
	problems := validateReference(path.Child("secretRef", "name"), "Secret", awx.SecretRef.Name)
	for name, value := range map[string]string{"organization": awx.Organization, "jobTemplatePrefix": awx.JobTemplatePrefix} {
		if strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }) {
			problems = append(problems, field.Invalid(path.Child(name), value, "the name holds characters that are not printable; remove them"))
		}
	}
	return problems
}
