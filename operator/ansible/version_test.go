// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package ansible_test

import (
	"os"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/caplv/caplv/operator/ansible"
)

func TestTheVersionOfTheRolesIsThatOfTheCollection(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile("../../galaxy.yml")
	g.Expect(err).NotTo(HaveOccurred())
	var galaxy struct {
		Version string `json:"version"`
	}
	g.Expect(yaml.Unmarshal(content, &galaxy)).To(Succeed())
	g.Expect(ansible.RolesVersion).To(Equal(galaxy.Version))
}
