// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestAKubeconfigForNodesNeedsANameThatTheyReach(t *testing.T) {
	_, err := (&ControlPlane{}).BootstrapKubeconfig(t.Context(), "6443")
	NewWithT(t).Expect(err).To(MatchError("Options.NodesServerName is required"))
}
