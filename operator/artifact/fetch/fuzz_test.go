// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func FuzzParseContentRange(f *testing.F) {
	for _, s := range []string{"bytes 0-9/10", "bytes 5-9/*", "bytes */10", "bytes 9-5/10", "bytes 0-18446744073709551615/1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		start, size, err := parseContentRange(text)
		if err == nil && (start < 0 || size < -1 || (size >= 0 && start >= size)) {
			t.Errorf("%q is a range from %d of %d bytes", text, start, size)
		}
	})
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"layers":[{"digest":"sha256:00","size":1,"annotations":{"org.opencontainers.image.title":"vmlinuz"}}]}`), "vmlinuz")
	f.Add([]byte(`{"manifests":[{"platform":{"os":"linux","architecture":"amd64"}}]}`), "")
	f.Fuzz(func(t *testing.T, text []byte, title string) {
		m, err := parseManifest(text)
		if err != nil {
			return
		}
		_, _ = choosePlatform(m.Manifests, title)
		d, err := chooseLayer(m.Layers, title)
		if err == nil && (d.Size < 0 || !blobDigest.MatchString(string(d.Digest))) {
			t.Errorf("a layer without a digest or a size: %+v", d)
		}
	})
}

func TestContentRanges(t *testing.T) {
	g := NewWithT(t)
	start, size, err := parseContentRange("bytes 5-9/10")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect([]int64{start, size}).To(Equal([]int64{5, 10}))
	start, size, err = parseContentRange("bytes 5-9/*")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect([]int64{start, size}).To(Equal([]int64{5, -1}))
	for _, bad := range []string{"", "bytes", "bytes */10", "bytes 9-5/10", "bytes -1-5/6", "lines 0-9/10", "bytes 0-8/10"} {
		_, _, err = parseContentRange(bad)
		g.Expect(err).To(HaveOccurred(), bad)
	}
}

func TestRetryAfterIsSecondsOrADate(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	g.Expect(retryAfter("7", now)).To(Equal(7 * time.Second))
	g.Expect(retryAfter("Mon, 01 Jan 2024 00:01:00 GMT", now)).To(Equal(time.Minute))
	g.Expect(retryAfter("soon", now)).To(BeZero())
	g.Expect(retryAfter("-5", now)).To(BeZero())
}
