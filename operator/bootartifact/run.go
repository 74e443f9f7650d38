// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootartifact

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/hostctl"
	"github.com/caplv/caplv/operator/hosts"
)

// run is the job: fetch, record, send what is missing, record.
func (s *Stager) run(ctx context.Context, w work) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	files, err := s.fetch(ctx, w)
	if err != nil {
		return err
	}
	defer release(files)
	set := Set{Kernel: files[0].onHost, Initramfs: files[1].onHost}
	err = s.record(ctx, w.lhost, func(records []infrav1.HostBootArtifact) []infrav1.HostBootArtifact {
		return intend(records, set, w.cluster)
	})
	if err != nil {
		return err
	}
	host, err := s.Hosts.Connect(ctx, w.lhost)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := s.bring(ctx, w, host, f); err != nil {
			return refused(err)
		}
	}
	now := metav1.Now()
	err = s.record(ctx, w.lhost, func(records []infrav1.HostBootArtifact) []infrav1.HostBootArtifact { return staged(records, set, now) })
	if err != nil {
		return err
	}
	s.keep(w.lhost.UID, result{key: w.key, set: set, at: now.Time})
	return nil
}

// bring sends a file to the host, unless it is there.
func (s *Stager) bring(ctx context.Context, w work, host hosts.Host, f local) error {
	s.tell(w.key, "the host looks for "+f.onHost.Name)
	present, err := host.HasBootFile(ctx, f.onHost)
	if err != nil || present {
		return err
	}
	s.tell(w.key, f.onHost.Name+" waits for its turn to be sent")
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	content, err := os.Open(f.Path)
	if err != nil {
		return fmt.Errorf("reading %s from the operator's cache: %w", f.onHost.Name, err)
	}
	defer func() { _ = content.Close() }()
	_, err = host.StageBootFile(ctx, f.onHost, f.Size, &meter{Reader: content, began: time.Now(), tell: func(done int64, rate float64) {
		s.tell(w.key, describe(f.onHost.Name+" is sent to the host", done, f.Size, rate))
	}})
	return err
}

// refused names what the helper has said.
func refused(err error) error {
	switch hostctl.CodeOf(err) {
	case hostctl.CodeBusy:
		// Such as what an operator that was killed has begun. It ends with its connection.
		return &Error{infrav1.BootArtifactsStagingReason, "another transfer of the same file to the host has not ended yet"}
	case hostctl.CodeNotOurs:
		return &Error{infrav1.BootArtifactsStagingFailedReason, err.Error() +
			"; mend that on the host, or set spec.bootArtifacts.hostPath of the LibvirtCluster to a directory below /var/lib/caplv"}
	}
	return err
}

// meter tells how much was read, and how fast on average.
type meter struct {
	io.Reader
	began time.Time
	done  int64
	tell  func(done int64, rate float64)
}

func (m *meter) Read(b []byte) (int, error) {
	n, err := m.Reader.Read(b)
	m.done += int64(n)
	rate := 0.0
	if passed := time.Since(m.began); passed > time.Second {
		rate = float64(m.done) / passed.Seconds()
	}
	m.tell(m.done, rate)
	return n, err
}

// record changes what a host's status says of its boot artifacts. Others write the same status, so that the change may be made more than once.
func (s *Stager) record(ctx context.Context, of *infrav1.LibvirtHost, change func([]infrav1.HostBootArtifact) []infrav1.HostBootArtifact) error {
	key := client.ObjectKeyFromObject(of)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lh := &infrav1.LibvirtHost{}
		if err := s.APIReader.Get(ctx, key, lh); err != nil {
			return err
		}
		if lh.UID != of.UID {
			return &Error{infrav1.HostNotFoundReason, fmt.Sprintf("LibvirtHost %s was replaced by another object", key)}
		}
		base := lh.DeepCopy()
		lh.Status.BootArtifacts = change(lh.Status.BootArtifacts)
		return s.Client.Status().Patch(ctx, lh, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	})
	if err != nil {
		return fmt.Errorf("recording boot artifacts in LibvirtHost %s: %w", key, err)
	}
	return nil
}
