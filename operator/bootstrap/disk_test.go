// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"bytes"
	"strings"
	"testing"

	ignition3 "github.com/coreos/ignition/v2/config/v3_4"
	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/bootstrap"
)

func TestADiskHasWholeBlocksAndIsStillAConfig(t *testing.T) {
	const config = `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/x","contents":{"source":"data:,%s"}}]}}`
	for _, size := range []int{1, 3000, 4094 - len(config), 4096 - len(config) + 2, 4097 - len(config) + 2, 100000} {
		g := NewWithT(t)
		data := []byte(strings.Replace(config, "%s", strings.Repeat("x", size), 1))
		before := bytes.Clone(data)
		disk := bootstrap.Disk(data)
		g.Expect(len(disk)%4096).To(BeZero(), "%d", len(data))
		g.Expect(len(disk)-len(data)).To(BeNumerically("<", 4096), "%d", len(data))
		g.Expect(bytes.HasPrefix(disk, data)).To(BeTrue())
		g.Expect(data).To(Equal(before))
		_, report, err := ignition3.Parse(disk)
		g.Expect(err).NotTo(HaveOccurred(), "%s", report)
	}
	NewWithT(t).Expect(bootstrap.Disk(nil)).To(BeEmpty())
}
