// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

func TestTheShippedDeploymentHasFlagsOfTheSidecar(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile("../../operator/config/manager/manager.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		deployment := &appsv1.Deployment{}
		if !strings.Contains(document, "kind: Deployment") {
			continue
		}
		g.Expect(yaml.UnmarshalStrict([]byte(document), deployment)).To(Succeed())
		container := deployment.Spec.Template.Spec.Containers[1]
		g.Expect(container.Name).To(Equal("ansible-runner"))
		o := &options{}
		fs := pflag.NewFlagSet("ansible-runner", pflag.ContinueOnError)
		o.addFlags(fs)
		g.Expect(fs.Parse(container.Args)).To(Succeed())
		g.Expect(o.runner.WorkDir).To(HavePrefix("/run/"))
		g.Expect(o.metricsAddress).To(Equal(fmt.Sprintf(":%d", container.Ports[0].ContainerPort)))
		return
	}
	t.Fatal("manager.yaml has no Deployment")
}
