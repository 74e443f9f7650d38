// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"encoding/json"
	"errors"
	"path"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/bootstrap"
)

// FuzzIgnition checks of whatever Ignition accepts that the result is accepted as well, as the same version, that it gives the
// guest one hostname, and that a second edit changes nothing.
func FuzzIgnition(f *testing.F) {
	for version := range versions {
		f.Add([]byte(config(version)))
		f.Add([]byte(minimal(version)))
	}
	for version := range versions2 {
		f.Add([]byte(config2(version)))
		f.Add([]byte(minimal(version)))
	}
	f.Add([]byte(`{"ignitionVersion":1}`))
	f.Add([]byte(`{"Ignition":{"VERSION":"3.1.0","config":{"merge":[null,{}]}},"storage":{"files":[null],"luks":[{"clevis":{"custom":{}}}]}}`))
	f.Add([]byte(`{"Ignition":{"Version":"2.2.0"},"Storage":{"Files":[null,{"FileSystem":"root","PATH":"/etc//hostname"}]},"systemd":{"units":[null]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		g := NewWithT(t)
		out, err := bootstrap.Ignition(data, worker(), bootstrap.Plain)
		if err != nil {
			var e *bootstrap.Error
			g.Expect(errors.As(err, &e)).To(BeTrue(), "%v", err)
			return
		}
		var head struct{ Ignition struct{ Version string } }
		g.Expect(json.Unmarshal(data, &head)).To(Succeed())
		version := head.Ignition.Version
		if parse, ok := versions2[version]; ok {
			g.Expect(parse(out)).To(Succeed())
		} else {
			g.Expect(versions).To(HaveKey(version))
			g.Expect(versions[version](out)).To(Succeed())
		}

		var config struct {
			Storage struct {
				Files, Directories, Links []struct {
					Filesystem, Path string
					Contents         struct{ Source string }
				}
			}
		}
		g.Expect(json.Unmarshal(out, &config)).To(Succeed())
		var hostnames []string
		for _, file := range append(append(config.Storage.Files, config.Storage.Directories...), config.Storage.Links...) {
			if path.Clean(file.Path) == "/etc/hostname" && (file.Filesystem == "root" || file.Filesystem == "") {
				hostnames = append(hostnames, file.Contents.Source)
			}
		}
		g.Expect(hostnames).To(Equal([]string{"data:;base64,ZGVmYXVsdC1wcm9kLXdvcmtlcjAxCg=="}))

		again, err := bootstrap.Ignition(out, worker(), bootstrap.Plain)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(again)).To(MatchJSON(string(out)))

		small, err := bootstrap.Ignition(data, worker(), bootstrap.Compact)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(len(small)).To(BeNumerically("<=", len(out)))
		g.Expect(string(unpack(g, small))).To(Equal(string(out)))
	})
}

// FuzzCloudInit checks that an image holds the user-data as it was given, whatever that is and whatever the machine is called.
func FuzzCloudInit(f *testing.F) {
	f.Add([]byte(userData), "libvirt://host-a/1")
	f.Add([]byte("#!/bin/sh\n"), "a b\"c\\d`e$f'g")
	f.Add(gzipBytes(userData), "END")
	f.Add([]byte(`{"ignition":{"version":"3.2.0"}}`), "a")
	f.Add([]byte("\x1f\x8b\x08"), "a")
	f.Fuzz(func(t *testing.T, data []byte, providerID string) {
		g := NewWithT(t)
		id := instance()
		id.ProviderID = providerID
		image, err := bootstrap.CloudInit(data, id)
		if err != nil {
			var e *bootstrap.Error
			g.Expect(errors.As(err, &e)).To(BeTrue(), "%v", err)
			return
		}
		label, files := readISO(t, image)
		g.Expect(label).To(HavePrefix("cidata"))
		g.Expect(files["user-data"]).To(Equal(string(data)))
		var metaData map[string]string
		g.Expect(json.Unmarshal([]byte(files["meta-data"]), &metaData)).To(Succeed())
		g.Expect(metaData).To(HaveKeyWithValue("provider-id", providerID))
	})
}
