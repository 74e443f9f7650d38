// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
)

func TestClusterAPIsServiceAccount(t *testing.T) {
	for value, want := range map[string]types.NamespacedName{
		"caplv-system/caplv-cluster-api": {Namespace: "caplv-system", Name: "caplv-cluster-api"},
		"caplv-cluster-api":              {}, "": {}, "/name": {}, "namespace/": {}, "a/b/c": {},
	} {
		t.Run(value, func(t *testing.T) {
			g := NewWithT(t)
			got, err := (&options{clusterAPIAccount: value}).clusterAPIServiceAccount()
			if want.Name == "" {
				g.Expect(err).To(MatchError(ContainSubstring("NAMESPACE/NAME")))
			} else {
				g.Expect(err).NotTo(HaveOccurred())
			}
			g.Expect(got).To(Equal(want))
		})
	}
}

func TestTheDefaultIsTheServiceAccountThatIsShipped(t *testing.T) {
	g := NewWithT(t)
	o := &options{}
	o.addFlags(pflag.NewFlagSet("manager", pflag.ContinueOnError))
	g.Expect(value(g, shippedPod(t).Containers[0].Args, "--cluster-api-service-account")).To(Equal(o.clusterAPIAccount))
}
