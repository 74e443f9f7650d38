// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package baseimage

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/hostsetup"
	"github.com/caplv/caplv/operator/hosturi"
)

// pullSource is the source that the host asks by itself.
func (s *Stager) pullSource(ctx context.Context, w work) (map[string]any, error) {
	https := w.image.Source.HTTPS
	if https == nil || https.SHA256 == "" {
		return nil, &Error{infrav1.BaseImageStagingFailedReason, "spec.baseImage.delivery Pull needs source.https with a sha256; set them, or use delivery Push"}
	}
	if https.InsecureSkipTLSVerify {
		return nil, &Error{infrav1.BaseImageStagingFailedReason, "hosts verify the certificates of what they pull from; remove source.https.insecureSkipTLSVerify, or use delivery Push"}
	}
	source := map[string]any{"url": string(https.URL)}
	if ref := https.CredentialsSecretRef; ref != nil {
		name := client.ObjectKey{Namespace: w.namespace, Name: ref.Name}
		secret := &corev1.Secret{}
		if err := s.APIReader.Get(ctx, name, secret); err != nil {
			if apierrors.IsNotFound(err) {
				return nil, &Error{infrav1.SecretNotFoundReason, fmt.Sprintf(
					"Secret %s of spec.baseImage.source.https.credentialsSecretRef does not exist; create it with the keys username and password", name)}
			}
			return nil, fmt.Errorf("reading Secret %s: %w", name, err)
		}
		for _, key := range []string{corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey} {
			if len(secret.Data[key]) == 0 {
				return nil, &Error{infrav1.SecretNotFoundReason, fmt.Sprintf("Secret %s of spec.baseImage.source.https.credentialsSecretRef has no key %q", name, key)}
			}
			source[key] = string(secret.Data[key])
		}
	}
	return source, nil
}

// carryOut runs the playbook, or goes on with a run that an earlier operator has begun, and records the result.
func (s *Stager) carryOut(ctx context.Context, w work, digest string, image map[string]any) error {
	if w.lhost.Spec.Bootstrap.Backend == infrav1.BackendAWX && image["src"] != nil {
		return &Error{infrav1.RunRejectedReason, "AWX cannot push an image that only the operator has; set spec.baseImage.delivery of the LibvirtCluster to Pull"}
	}
	uri, err := hosturi.Parse(w.lhost.Spec.URI)
	if err != nil {
		return &Error{infrav1.InvalidURIReason, "spec." + err.Error()}
	}
	backend, err := s.Runners.Backend(ctx, w.lhost)
	if err != nil {
		return err
	}
	target, err := s.Runners.Target(ctx, w.lhost)
	if err != nil {
		return err
	}
	run, err := s.intend(ctx, w, digest)
	if err != nil {
		return err
	}
	ref, err := backend.Submit(ctx, ansible.Request{
		Key: run.Key, Playbook: ansible.StageBaseImage, Hosts: []ansible.Host{target}, Variables: variables(uri, image),
		Deadline: runTimeout, Submitted: run.SubmittedAt.Time,
	})
	if err != nil {
		return s.refused(ctx, w, run, err)
	}
	if ref.ID != run.ID {
		run.ID = ref.ID
		if err := s.record(ctx, w, func(r *infrav1.HostBaseImage) { r.Run = run.DeepCopy() }); err != nil {
			return err
		}
	}
	status, err := s.follow(ctx, w, backend, ref)
	if err != nil {
		return err
	}
	return s.conclude(ctx, w, digest, run, status, target.Name)
}

// intend records a run before anybody is asked for it. A run of the same digest that has not ended is gone on with.
func (s *Stager) intend(ctx context.Context, w work, digest string) (*infrav1.BootstrapRun, error) {
	var run *infrav1.BootstrapRun
	err := s.record(ctx, w, func(r *infrav1.HostBaseImage) {
		attempt := int32(1)
		if last := r.Run; last != nil && last.DesiredStateHash == digest {
			if last.FinishedAt == nil && last.Backend == w.lhost.Spec.Bootstrap.Backend {
				run = last.DeepCopy()
				return
			}
			attempt = last.Attempt + 1
		}
		now := metav1.Now()
		run = &infrav1.BootstrapRun{
			Key: runKey(w.lhost, &w.image, digest, attempt, now.Unix()), Playbook: string(ansible.StageBaseImage), Mode: infrav1.BootstrapApply,
			Backend: w.lhost.Spec.Bootstrap.Backend, DesiredStateHash: digest, Attempt: attempt, Phase: infrav1.RunSubmitting, SubmittedAt: now,
		}
		r.Run = run.DeepCopy()
	})
	return run, err
}

// refused ends a run that the backend does not take. One that it could not be asked for may have reached it all the same, and is asked for again.
func (s *Stager) refused(ctx context.Context, w work, run *infrav1.BootstrapRun, err error) error {
	reason := infrav1.RunnerUnavailableReason
	if ansible.ReasonOf(err) == ansible.Rejected {
		reason = infrav1.RunRejectedReason
		if recordErr := s.end(ctx, w, run, ansible.Status{Phase: ansible.Failed, Message: err.Error()}, ""); recordErr != nil {
			return errors.Join(err, recordErr)
		}
	}
	return &Error{reason, "the image cannot be brought to the host: " + err.Error()}
}

// follow waits for the end of a run. A backend that does not answer is asked again: its runs may go on without it, as AWX's do.
func (s *Stager) follow(ctx context.Context, w work, backend ansible.Backend, ref ansible.Ref) (ansible.Status, error) {
	var seen int64
	for {
		err := backend.Follow(ctx, ref, seen, func(e ansible.Event) {
			seen = max(seen, e.Sequence)
			s.note(w.key, e)
		})
		if ctx.Err() != nil {
			return ansible.Status{}, ctx.Err()
		}
		if err == nil || ansible.ReasonOf(err) == ansible.UnknownRun {
			status, err := backend.Status(ctx, ref)
			switch {
			case err == nil && status.Phase.Ended():
				return status, nil
			case err != nil && ansible.ReasonOf(err) == ansible.UnknownRun:
				return ansible.Status{Ref: ref, Phase: ansible.Lost, Message: "who carried the run out has no record of it"}, nil
			}
		}
		if err != nil {
			s.tell(w.key, "waiting for who runs the playbook: "+err.Error())
		}
		select {
		case <-ctx.Done():
			return ansible.Status{}, ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

// conclude records how a run ended, and returns what is wrong.
func (s *Stager) conclude(ctx context.Context, w work, digest string, run *infrav1.BootstrapRun, status ansible.Status, host string) error {
	if status.Phase != ansible.Succeeded {
		digest = ""
	}
	if err := s.end(ctx, w, run, status, digest); err != nil {
		return err
	}
	if status.Phase == ansible.Succeeded {
		return nil
	}
	result := status.Hosts[host]
	switch {
	case status.Phase == ansible.Unreachable:
		return &Error{infrav1.UnreachableReason, "Ansible could not reach the host to bring the image: " + first(result.Message, status.Message)}
	case result.FailedTask != "":
		return &Error{infrav1.BaseImageStagingFailedReason, fmt.Sprintf("task %q failed: %s", result.FailedTask, result.Message)}
	}
	return &Error{infrav1.BaseImageStagingFailedReason, fmt.Sprintf(
		"the run that brings the image to the host ended as %s: %s", status.Phase, first(status.Message, "no reason is known"))}
}

// end records a run as ended; with a digest, the image as staged.
func (s *Stager) end(ctx context.Context, w work, run *infrav1.BootstrapRun, status ansible.Status, staged string) error {
	return s.record(ctx, w, func(r *infrav1.HostBaseImage) {
		now := metav1.Now()
		ended := run.DeepCopy()
		hostsetup.Note(ended, status, hostsetup.HostName(w.lhost))
		ended.FinishedAt, ended.Progress = &now, ""
		r.Run = ended
		if staged != "" {
			r.SHA256, r.StagedAt = infrav1.SHA256(staged), &now
		}
	})
}

// record changes the host's record of the image. Others write the same status, so that the change may be made more than once.
func (s *Stager) record(ctx context.Context, w work, change func(*infrav1.HostBaseImage)) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lh := &infrav1.LibvirtHost{}
		if err := s.APIReader.Get(ctx, w.host, lh); err != nil {
			return err
		}
		if lh.UID != w.lhost.UID {
			return &Error{infrav1.HostNotFoundReason, fmt.Sprintf("LibvirtHost %s was replaced by another object", w.host)}
		}
		base := lh.DeepCopy()
		r := Recorded(lh, &w.image)
		if r == nil {
			lh.Status.BaseImages = append(lh.Status.BaseImages, infrav1.HostBaseImage{Pool: w.image.Pool, VolumeName: w.image.VolumeName})
			r = &lh.Status.BaseImages[len(lh.Status.BaseImages)-1]
		}
		change(r)
		return s.Client.Status().Patch(ctx, lh, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	})
	if err != nil {
		return fmt.Errorf("recording the image in LibvirtHost %s: %w", w.host, err)
	}
	return nil
}

func first(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}
