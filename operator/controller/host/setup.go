// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/hostctl"
	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/setup"
)

// setupOf is what the status shows of the recorded facts: nothing, where nothing is recorded.
func setupOf(facts setup.Facts) *infrav1.HostSetup {
	if facts == (setup.Facts{}) {
		return nil
	}
	return &infrav1.HostSetup{RolesVersion: facts.RolesVersion, Mode: infrav1.HostMode(facts.Mode), Account: facts.Account}
}

// remark is what the recorded facts add to the message of a condition: that the host was set up for another use than the object
// makes of it, which explains many failures and, without one, announces them.
func remark(lh *infrav1.LibvirtHost, facts setup.Facts, err error) string {
	endpoint, invalid := hosts.ParseURI(lh.Spec.URI)
	if invalid != nil {
		return ""
	}
	mode := string(endpoint.Mode)
	if differences := facts.Differences(mode, endpoint.User); differences != "" {
		return " (" + differences + ")"
	}
	switch hostctl.CodeOf(err) {
	case hostctl.CodeHelperMissing, hostctl.CodeHelperNotPermitted, hostctl.CodeHelperOutdated:
		return fmt.Sprintf(" (with caplv_mode=%s and caplv_user=%s)", mode, endpoint.User)
	}
	return ""
}
