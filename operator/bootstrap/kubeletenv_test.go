// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	types "github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/gomega"
	"github.com/vincent-petithory/dataurl"

	"github.com/caplv/caplv/operator/bootstrap"
)

const (
	kubeletEnv = "/etc/kubernetes/kubelet-env"
	ours       = "KUBELET_PROVIDERID=libvirt://host-a/3f0c8a4e-6f0e-5a59-9d0e-3e1d1f9b7a11\n"
)

func decoded(g *WithT, source string) string {
	url, err := dataurl.DecodeString(source)
	g.Expect(err).NotTo(HaveOccurred())
	return string(url.Data)
}

func gzipBytes(content string) []byte {
	var out bytes.Buffer
	writer := gzip.NewWriter(&out)
	_, _ = writer.Write([]byte(content))
	_ = writer.Close()
	return out.Bytes()
}

func gzipped(content string) string {
	return "data:;base64," + base64.StdEncoding.EncodeToString(gzipBytes(content))
}

func sha512Of(content string) string {
	sum := sha512.Sum512([]byte(content))
	return "sha512-" + hex.EncodeToString(sum[:])
}

// withEnv is a config of spec 3 with the given rest of an entry for the file.
func withEnv(rest string) string {
	return `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"` + kubeletEnv + `",` + rest + `}]}}`
}

func TestTheEnvironmentOfTheKubeletIsMerged(t *testing.T) {
	for _, row := range []struct{ name, before, after string }{
		{"an empty file", "", ours},
		{"other variables", "A=b\nC=d\n", "A=b\nC=d\n" + ours},
		{"a last line without end", "A=b", "A=b\n" + ours},
		{"an old ID is replaced in its place", "A=b\nKUBELET_PROVIDERID=old\nC=d\n", "A=b\n" + ours + "C=d\n"},
		{"an old ID that goes on in the next line", "KUBELET_PROVIDERID=o\\\nld\nC=d\n", ours + "C=d\n"},
		{"several old IDs", "KUBELET_PROVIDERID=\nA=b\n  export KUBELET_PROVIDERID = 'x'\n", ours + "A=b\n"},
		{"an old ID in the last line, without end", "A=b\nKUBELET_PROVIDERID=old", "A=b\n" + ours},
		{"variables and values of a similar name", "KUBELET_PROVIDERID_FLAG=a\nXKUBELET_PROVIDERID=b\nA=KUBELET_PROVIDERID=c\n",
			"KUBELET_PROVIDERID_FLAG=a\nXKUBELET_PROVIDERID=b\nA=KUBELET_PROVIDERID=c\n" + ours},
		{"a value that has the name in a continued line", "A=b\\\nKUBELET_PROVIDERID=c\n", "A=b\\\nKUBELET_PROVIDERID=c\n" + ours},
		{"a comment", "# KUBELET_PROVIDERID=old\n", "# KUBELET_PROVIDERID=old\n" + ours},
		{"a backslash at the end", "A=b\\", "A=b\\\n\n" + ours},
		{"a backslash at the end of the last line", "A=b\\\n", "A=b\\\n\n" + ours},
		{"a doubled backslash at the end", "A=b\\\\\n", "A=b\\\\\n" + ours},
		{"bytes that are no text", "A=\xff\n", "A=\xff\n" + ours},
	} {
		for form, contents := range map[string]string{
			"base64":  fmt.Sprintf(`{"source":%q}`, "data:;base64,"+base64.StdEncoding.EncodeToString([]byte(row.before))),
			"percent": fmt.Sprintf(`{"source":%q}`, "data:text/plain;charset=utf-8,"+dataurl.EscapeString(row.before)),
			"gzip": fmt.Sprintf(`{"source":%q,"compression":"gzip","verification":{"hash":%q}}`,
				gzipped(row.before), sha512Of(row.before)),
		} {
			t.Run(row.name+" as "+form, func(t *testing.T) {
				g := NewWithT(t)
				out, err := bootstrap.Ignition([]byte(withEnv(`"mode":384,"user":{"name":"core"},"group":{"id":7},"contents":`+contents)), worker(), bootstrap.Plain)
				g.Expect(err).NotTo(HaveOccurred())
				file := fileOf(g, read(g, out), kubeletEnv)
				g.Expect(contentOf(g, file)).To(Equal(row.after))
				g.Expect(file.Contents.Verification.Hash).To(BeNil())
				g.Expect(*file.Mode).To(Equal(0o600))
				g.Expect(*file.User.Name).To(Equal("core"))
				g.Expect(*file.Group.ID).To(Equal(7))

				twice, err := bootstrap.Ignition(out, worker(), bootstrap.Plain)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(twice).To(MatchJSON(out))
			})
		}
	}
}

func TestAProviderIDThatNeedsQuotesIsQuotedInTheEnvironment(t *testing.T) {
	g := NewWithT(t)
	id := worker()
	id.ProviderID = "a b\"c\\d`e$f'g"
	out, err := bootstrap.Ignition([]byte(withEnv(`"contents":{"source":"data:,"}`)), id, bootstrap.Plain)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(contentOf(g, fileOf(g, read(g, out), kubeletEnv))).To(Equal("KUBELET_PROVIDERID=\"a b\\\"c\\\\d\\`e\\$f'g\"\n"))
}

func TestAFileThatOnlyAppendsKeepsWhatTheImageHas(t *testing.T) {
	for _, row := range []struct{ name, data, after string }{
		{"no file in the config", minimal("3.2.0"), ours},
		{"a file without content", withEnv(`"mode":420`), ours},
		{"parts", withEnv(`"append":[{"source":"data:,A=b%0A"},{"source":"data:,KUBELET_PROVIDERID=c"}]`), "A=b\n" + ours},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			out, err := bootstrap.Ignition([]byte(row.data), worker(), bootstrap.Plain)
			g.Expect(err).NotTo(HaveOccurred())
			file := fileOf(g, read(g, out), kubeletEnv)
			g.Expect(file.Contents).To(Equal(types.Resource{}))
			g.Expect(file.Overwrite).To(BeNil())
			g.Expect(file.Append).To(HaveLen(1))
			g.Expect(decoded(g, *file.Append[0].Source)).To(Equal(row.after))
		})
	}
}

func TestPartsOfAFileAreMergedIntoOne(t *testing.T) {
	g := NewWithT(t)
	out, err := bootstrap.Ignition([]byte(withEnv(`"contents":{"source":"data:,A=b%0A"},"append":[{"source":"data:,C=d%0A"}]`)), worker(), bootstrap.Plain)
	g.Expect(err).NotTo(HaveOccurred())
	file := fileOf(g, read(g, out), kubeletEnv)
	g.Expect(contentOf(g, file)).To(Equal("A=b\nC=d\n" + ours))
	g.Expect(file.Append).To(BeEmpty())
}

func TestAnEnvironmentThatCannotBeKnownIsLeftAlone(t *testing.T) {
	bomb := gzipped(strings.Repeat("\x00", 2<<20))
	for _, row := range []struct{ name, files, rest string }{
		{"over the network", `{"path":"` + kubeletEnv + `","contents":{"source":"https://192.0.2.1/env"}}`, ""},
		{"a part over the network", `{"path":"` + kubeletEnv + `","contents":{"source":"data:,a"},"append":[{"source":"http://192.0.2.1/env"}]}`, ""},
		{"another hash", `{"path":"` + kubeletEnv + `","contents":{"source":"data:,a","verification":{"hash":"` + sha512Of("b") + `"}}}`, ""},
		{"no gzip", `{"path":"` + kubeletEnv + `","contents":{"source":"data:,a","compression":"gzip"}}`, ""},
		{"more than a file of this kind can be", `{"path":"` + kubeletEnv + `","contents":{"source":"` + bomb + `","compression":"gzip"}}`, ""},
		{"a link", "", `,"links":[{"path":"` + kubeletEnv + `","target":"/run/env"}]`},
		{"a link above it", "", `,"links":[{"path":"/etc/kubernetes","target":"/run/kubernetes"}]`},
		{"a directory", "", `,"directories":[{"path":"` + kubeletEnv + `"}]`},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			data := []byte(`{"ignition":{"version":"3.4.0"},"storage":{"files":[` + row.files + `]` + row.rest + `}}`)
			before := read(g, data)
			out, err := bootstrap.Ignition(data, worker(), bootstrap.Plain)
			g.Expect(err).NotTo(HaveOccurred())
			after := read(g, out)
			g.Expect(after.Storage.Links).To(Equal(before.Storage.Links))
			g.Expect(after.Storage.Directories).To(Equal(before.Storage.Directories))
			g.Expect(after.Storage.Files[:len(before.Storage.Files)]).To(Equal(before.Storage.Files))
			g.Expect(after.Storage.Files).To(HaveLen(len(before.Storage.Files) + 2))
		})
	}
}

func TestTheEnvironmentIsMergedInSpec2(t *testing.T) {
	for _, row := range []struct{ name, version, files, after string }{
		{"no file in the config", "2.0.0", ``, `{"path":"PATH","filesystem":"root","mode":420,"contents":{"source":"OURS"}}`},
		{"no file in the config where files can be appended to", "2.2.0", ``,
			`{"path":"PATH","filesystem":"root","mode":420,"append":true,"contents":{"source":"OURS"}}`},
		{"the mode stays unset", "2.3.0", `{"path":"PATH","filesystem":"root","contents":{"source":"data:,KUBELET_PROVIDERID=x"}}`,
			`{"path":"PATH","filesystem":"root","overwrite":true,"contents":{"source":"OURS"}}`},
		{"the last file wins, and what is appended to it", "2.3.0", `{"path":"PATH","filesystem":"root","contents":{"source":"http://192.0.2.1"}},
			{"path":"PATH","filesystem":"root","contents":{"source":"data:,KUBELET_PROVIDERID=x%0A"},"mode":384,"user":{"id":7}},
			{"path":"PATH","filesystem":"root","append":true,"contents":{"source":"data:,KUBELET_PROVIDERID=y%0A"},"mode":256}`,
			`{"path":"PATH","filesystem":"root","overwrite":true,"mode":256,"user":{"id":7},"contents":{"source":"OURS"}}`},
		{"appended parts stay appended", "2.2.0", `{"path":"PATH","filesystem":"root","append":true,"contents":{"source":"data:,KUBELET_PROVIDERID=y"}}`,
			`{"path":"PATH","filesystem":"root","append":true,"contents":{"source":"OURS"}}`},
		{"a part over the network is left alone", "2.3.0",
			`{"path":"PATH","filesystem":"root","append":true,"contents":{"source":"http://192.0.2.1","verification":{}}}`,
			`{"path":"PATH","filesystem":"root","append":true,"contents":{"source":"http://192.0.2.1"}}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			replacer := strings.NewReplacer("PATH", kubeletEnv, "OURS", "data:;base64,"+base64.StdEncoding.EncodeToString([]byte(ours)))
			data := `{"ignition":{"version":"` + row.version + `"},"storage":{"files":[` + replacer.Replace(row.files) + `]}}`
			out, err := bootstrap.Ignition([]byte(data), worker(), bootstrap.Plain)
			g.Expect(err).NotTo(HaveOccurred())
			var after struct {
				Storage struct{ Files []map[string]any }
			}
			g.Expect(json.Unmarshal(out, &after)).To(Succeed())
			var found []map[string]any
			for _, file := range after.Storage.Files {
				if file["path"] == kubeletEnv {
					found = append(found, file)
				}
			}
			var want map[string]any
			g.Expect(json.Unmarshal([]byte(replacer.Replace(row.after)), &want)).To(Succeed())
			g.Expect(found).To(Equal([]map[string]any{want}))
		})
	}
}
