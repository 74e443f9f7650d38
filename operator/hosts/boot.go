// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"io"

	"github.com/caplv/caplv/operator/hostctl"
)

// BootFiles are the files on a host that machines boot directly. The helper keeps them; *hostctl.Client describes the errors.
type BootFiles interface {
	// HasBootFile says whether a file is there, with its digest.
	HasBootFile(ctx context.Context, f hostctl.BootFile) (bool, error)
	// StageBootFile puts a file there, from size bytes of content, and returns whether it was missing.
	StageBootFile(ctx context.Context, f hostctl.BootFile, size int64, content io.Reader) (bool, error)
	// RemoveBootFiles removes the files with a digest below a directory.
	RemoveBootFiles(ctx context.Context, dir, sha256 string) error
}

func (h *host) HasBootFile(ctx context.Context, f hostctl.BootFile) (bool, error) {
	return h.helper.HasBootFile(ctx, f)
}

func (h *host) StageBootFile(ctx context.Context, f hostctl.BootFile, size int64, content io.Reader) (bool, error) {
	return h.helper.StageBootFile(ctx, f, size, content)
}

func (h *host) RemoveBootFiles(ctx context.Context, dir, sha256 string) error {
	return h.helper.RemoveBootFiles(ctx, dir, sha256)
}
