// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/bootstrap"
)

// unpack returns the config that a guest ends up with: what replaces the given one, or that itself.
func unpack(g *WithT, data []byte) []byte {
	var outer struct {
		Ignition struct {
			Config struct {
				Replace struct {
					Source, Compression string
					Verification        struct{ Hash string }
				}
			}
		}
	}
	g.Expect(json.Unmarshal(data, &outer)).To(Succeed())
	replace := outer.Ignition.Config.Replace
	if replace.Source == "" {
		return data
	}
	g.Expect(replace.Compression).To(Equal("gzip"))
	encoded, ok := strings.CutPrefix(replace.Source, "data:;base64,")
	g.Expect(ok).To(BeTrue())
	packed, err := base64.StdEncoding.DecodeString(encoded)
	g.Expect(err).NotTo(HaveOccurred())
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	g.Expect(err).NotTo(HaveOccurred())
	inner, err := io.ReadAll(reader)
	g.Expect(err).NotTo(HaveOccurred())
	sum := sha256.Sum256(inner)
	g.Expect(replace.Verification.Hash).To(Equal("sha256-" + hex.EncodeToString(sum[:])))
	return inner
}

// large is a config as OpenShift renders it: many files with much in common.
func large(version string) string {
	var files []string
	for i := range 100 {
		files = append(files, fmt.Sprintf(`{"path":"/etc/file-%d","mode":420,"overwrite":true,"contents":{"source":"data:,%s"}}`,
			i, strings.Repeat("key%20%3D%20value%0A", 50)))
	}
	return `{"ignition":{"version":"` + version + `"},"storage":{"files":[` + strings.Join(files, ",") + `]}}`
}

func TestACompactConfigHoldsThePlainOne(t *testing.T) {
	for version, parse := range versions {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			plain, err := bootstrap.Ignition([]byte(large(version)), worker(), bootstrap.Plain)
			g.Expect(err).NotTo(HaveOccurred())
			compact, err := bootstrap.Ignition([]byte(large(version)), worker(), bootstrap.Compact)
			g.Expect(err).NotTo(HaveOccurred())
			again, err := bootstrap.Ignition([]byte(large(version)), worker(), bootstrap.Compact)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(again).To(Equal(compact), "the same input must give the same bytes")
			g.Expect(parse(compact)).To(Succeed(), "Ignition must accept the result as the same version")
			g.Expect(string(unpack(g, compact))).To(Equal(string(plain)))
			if version == "3.0.0" {
				g.Expect(compact).To(Equal(plain), "3.0.0 has no compressed configs")
			} else {
				g.Expect(len(compact)).To(BeNumerically("<", len(plain)/10))
			}
		})
	}
}

func TestAConfigThatWouldNotShrinkStaysPlain(t *testing.T) {
	g := NewWithT(t)
	// Digests do not compress.
	noise := ""
	for i := range 20 {
		sum := sha256.Sum256([]byte{byte(i)})
		noise += base64.RawURLEncoding.EncodeToString(sum[:])
	}
	data := `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a","contents":{"source":"data:,` + noise + `"}}]}}`
	id := worker()
	plain, err := bootstrap.Ignition([]byte(data), id, bootstrap.Plain)
	g.Expect(err).NotTo(HaveOccurred())
	compact, err := bootstrap.Ignition([]byte(data), id, bootstrap.Compact)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(compact)).To(BeNumerically("<=", len(plain)))
}

func TestSpec2IsDeliveredPlain(t *testing.T) {
	for version := range versions2 {
		g := NewWithT(t)
		plain, err := bootstrap.Ignition([]byte(config2(version)), worker(), bootstrap.Plain)
		g.Expect(err).NotTo(HaveOccurred())
		compact, err := bootstrap.Ignition([]byte(config2(version)), worker(), bootstrap.Compact)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(compact).To(Equal(plain))
	}
}
