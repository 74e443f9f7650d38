// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package baseimage brings the base image of a LibvirtCluster to hosts: it has the image fetched once, and has the playbook
// stage_base_image run on each host that lacks it.
package baseimage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/hosturi"
)

// File is an image that this machine has.
type File struct {
	// Path is the same for the operator and for who runs the playbooks.
	Path string
	// SHA256 is the digest of its content, in lower-case hexadecimal digits, and Size its length in bytes.
	SHA256 string
	Size   int64
	// Release lets it be deleted. It is called once.
	Release func()
}

// Fetcher has images on this machine.
type Fetcher interface {
	// Fetch returns the image of a source, whose Secret is in the namespace. It takes as long as the transfer, and tells bytes done and, where known,
	// bytes in all. Equal calls share one transfer.
	Fetch(ctx context.Context, namespace string, source infrav1.BaseImageSource, tell func(done, total int64)) (File, error)
}

// Runners say who runs playbooks on a host, and how he gets there.
type Runners interface {
	Backend(ctx context.Context, lh *infrav1.LibvirtHost) (ansible.Backend, error)
	Target(ctx context.Context, lh *infrav1.LibvirtHost) (ansible.Host, error)
}

// Error is why an image is not on a host, as the reason and the message of a condition.
type Error struct {
	Reason  string
	Message string
}

func (e *Error) Error() string { return e.Message }

// Pinned is the digest that the cluster's author wants, or empty.
func Pinned(image *infrav1.BaseImage) string {
	switch {
	case image.Source.HTTPS != nil:
		return string(image.Source.HTTPS.SHA256)
	case image.Source.OCI != nil:
		return string(image.Source.OCI.SHA256)
	case image.Source.S3 != nil:
		return string(image.Source.S3.SHA256)
	}
	return ""
}

// Recorded returns the host's record of the image, or nil.
func Recorded(lh *infrav1.LibvirtHost, image *infrav1.BaseImage) *infrav1.HostBaseImage {
	for i := range lh.Status.BaseImages {
		if r := &lh.Status.BaseImages[i]; r.Pool == image.Pool && r.VolumeName == image.VolumeName {
			return r
		}
	}
	return nil
}

// Current says whether a volume that is in its place on the host is the wanted image, as far as can be known: an image that no digest pins is
// taken as it is, and so is one on a host that the operator may not change.
func Current(lh *infrav1.LibvirtHost, image *infrav1.BaseImage) bool {
	pinned := Pinned(image)
	if pinned == "" || !mayStage(lh) {
		return true
	}
	record := Recorded(lh, image)
	return record != nil && record.StagedAt != nil && string(record.SHA256) == pinned
}

// mayStage says whether the operator may change what is on the host: it has an account there, and was not told only to look.
func mayStage(lh *infrav1.LibvirtHost) bool {
	return lh.Spec.Bootstrap != nil && lh.Spec.Bootstrap.Mode != infrav1.BootstrapCheck
}

// runKey names a run: one for each host, image, digest and attempt. The time keeps it from the keys of a record that was lost.
func runKey(lh *infrav1.LibvirtHost, image *infrav1.BaseImage, digest string, attempt int32, unix int64) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%s", lh.UID, image.Pool, image.VolumeName, digest))
	return fmt.Sprintf("image-%s-%d-%d", hex.EncodeToString(sum[:8]), unix, attempt)
}

// variables are those of the role base_image.
func variables(uri hosturi.URI, image map[string]any) map[string]any {
	return map[string]any{
		"caplv_mode": strings.TrimPrefix(uri.Path, "/"), "caplv_user": uri.User, "caplv_base_images": []any{image},
	}
}
