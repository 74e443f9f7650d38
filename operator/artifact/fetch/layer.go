// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"encoding/json"
	"regexp"
	"runtime"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/caplv/caplv/operator/artifact/fault"
)

// manifest is what manifests and indexes of OCI and of Docker have in common, and the older artifact manifest.
type manifest struct {
	Layers    []ocispec.Descriptor `json:"layers"`
	Blobs     []ocispec.Descriptor `json:"blobs"`
	Manifests []ocispec.Descriptor `json:"manifests"`
}

// unpackAnnotation marks a layer that oras has made of a directory.
const unpackAnnotation = "io.deis.oras.content.unpack"

var blobDigest = regexp.MustCompile("^sha256:[0-9a-f]{64}$")

// findLayer follows a manifest, or an index of manifests, to the layer that is meant.
func (l *ociLayer) findLayer(ctx context.Context, d ocispec.Descriptor) (ocispec.Descriptor, error) {
	m, err := l.readManifest(ctx, d)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	if len(m.Manifests) > 0 {
		chosen, err := choosePlatform(m.Manifests, l.location.Platform)
		if err != nil {
			return ocispec.Descriptor{}, err
		}
		if m, err = l.readManifest(ctx, chosen); err != nil {
			return ocispec.Descriptor{}, err
		}
	}
	return chooseLayer(append(m.Layers, m.Blobs...), l.location.Title)
}

func (l *ociLayer) readManifest(ctx context.Context, d ocispec.Descriptor) (manifest, error) {
	text, err := l.manifest(ctx, d)
	if err != nil {
		return manifest{}, err
	}
	return parseManifest(text)
}

func parseManifest(text []byte) (manifest, error) {
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return manifest{}, fault.New(fault.Invalid, fault.Location, "the reference's manifest is not JSON as it should be; upload the artifact again").Because(err)
	}
	return m, nil
}

func choosePlatform(manifests []ocispec.Descriptor, platform string) (ocispec.Descriptor, error) {
	if platform == "" {
		platform = "linux/" + runtime.GOARCH
	}
	var has []string
	for _, d := range manifests {
		p := d.Platform
		if p == nil {
			continue
		}
		name := p.OS + "/" + p.Architecture
		if p.Variant != "" && name+"/"+p.Variant == platform || name == platform {
			return d, nil
		}
		has = append(has, name)
	}
	if len(manifests) == 1 && manifests[0].Platform == nil {
		return manifests[0], nil
	}
	return ocispec.Descriptor{}, fault.New(fault.NotFound, fault.Location, "the index has nothing for the platform %s, only for: %s; name the digest of the manifest that is meant",
		platform, strings.Join(has, ", "))
}

func chooseLayer(layers []ocispec.Descriptor, title string) (ocispec.Descriptor, error) {
	var fits []ocispec.Descriptor
	var titles []string
	for _, d := range layers {
		name := d.Annotations[ocispec.AnnotationTitle]
		if name != "" {
			titles = append(titles, name)
		}
		if title == "" || name == title {
			fits = append(fits, d)
		}
	}
	switch {
	case len(layers) == 0:
		return ocispec.Descriptor{}, fault.New(fault.NotFound, fault.Location, "the artifact has no layers; push the file into it")
	case len(fits) == 0:
		return ocispec.Descriptor{}, fault.New(fault.NotFound, fault.Location, "the artifact has no layer with the title %q, only: %s", title, strings.Join(titles, ", "))
	case len(fits) > 1:
		return ocispec.Descriptor{}, fault.New(fault.NotFound, fault.Location, "the artifact has %d layers that may be meant; name the title of one of: %s",
			len(fits), strings.Join(titles, ", "))
	}
	layer := fits[0]
	switch {
	case !blobDigest.MatchString(string(layer.Digest)) || layer.Size < 0:
		return ocispec.Descriptor{}, fault.New(fault.Invalid, fault.Location, "the artifact's layer has no sha256 digest, or no size; push it with another tool")
	case layer.Annotations[unpackAnnotation] == "true":
		return ocispec.Descriptor{}, fault.New(fault.Invalid, fault.Location, "the layer %q is a directory; push the file itself", layer.Annotations[ocispec.AnnotationTitle])
	}
	return layer, nil
}
