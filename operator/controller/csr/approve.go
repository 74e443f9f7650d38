// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package csr

import (
	"context"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/csr"
)

// maxNote is the length in bytes that a note of an Event may have.
const maxNote = 1000

// approve decides once more with what the API server says now, records the approval of a client certificate with the machine, and
// approves. In this order an end in between can neither lose the approval nor lead to a second one.
func (r *Reconciler) approve(
	ctx context.Context, object *certificatesv1.CertificateSigningRequest, request *csr.Request, known *csr.Known, lm *infrav1.LibvirtMachine,
) (csr.Decision, error) {
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(lm), lm); err != nil {
		return csr.Decision{}, err
	}
	if lm.Status.NodeName != request.NodeName {
		known.Machines = 0
	}
	if _, err := r.learnMachine(ctx, r.APIReader, known, lm); err != nil {
		return csr.Decision{}, err
	}
	var err error
	if known.Load, err = r.countLoad(ctx, 0); err != nil {
		return csr.Decision{}, err
	}
	decision := request.Decide(known)
	if decision.Outcome != csr.Approve {
		return decision, nil
	}
	if !request.Serving {
		if err := r.record(ctx, request, lm); err != nil {
			return csr.Decision{}, err
		}
	}
	approved := object.DeepCopy()
	approved.Status.Conditions = append(approved.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "ApprovedByCAPLV", Message: decision.Message,
		LastUpdateTime: metav1.Now(),
	})
	return decision, r.Client.SubResource("approval").Update(ctx, approved)
}

// record writes down which client certificate is approved for a machine. Of two requests that are decided at the same time, the lock
// lets one pass.
func (r *Reconciler) record(ctx context.Context, request *csr.Request, lm *infrav1.LibvirtMachine) error {
	wanted := infrav1.NodeClientCertificate{RequestName: request.Name, RequestUID: request.UID, PublicKeySHA256: request.PublicKeySHA256}
	if lm.Status.NodeClientCertificate != nil && *lm.Status.NodeClientCertificate == wanted {
		return nil
	}
	base := lm.DeepCopy()
	lm.Status.NodeClientCertificate = &wanted
	return r.Client.Status().Patch(ctx, lm, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
}

// said is what was told of a request last.
type said struct {
	uid      string
	decision csr.Reason
}

// tell logs, counts and announces a decision, unless it did so before. Only who is known to be a machine's is announced, so that
// strangers cannot fill the cluster with Events.
func (r *Reconciler) tell(ctx context.Context, object *certificatesv1.CertificateSigningRequest, lm *infrav1.LibvirtMachine, d csr.Decision) {
	if d.Reason == csr.AlreadyDecided {
		r.told.Delete(object.Name)
		return
	}
	now := said{string(object.UID), d.Reason}
	if before, _ := r.told.Swap(object.Name, now); before == now {
		return
	}
	_, serving := csr.Signer(object.Spec.SignerName)
	countDecision(serving, d)
	note := d.Message
	if len(note) > maxNote {
		note = note[:maxNote] + "…"
	}
	log := ctrl.LoggerFrom(ctx)
	if lm == nil {
		log.V(1).Info("Ignoring a certificate request", "reason", d.Reason, "message", note)
		return
	}
	log.Info("Decided about a certificate request", "decision", d.Outcome, "reason", d.Reason, "message", note, "LibvirtMachine", client.ObjectKeyFromObject(lm))
	kind, reason := corev1.EventTypeNormal, "Certificate"+string(d.Reason)
	if d.Outcome == csr.Ignore || d.Reason == csr.TooManyPending || d.Reason == csr.StaleNode {
		kind = corev1.EventTypeWarning
	}
	r.Recorder.Eventf(object, lm, kind, reason, "ApprovingCertificate", "%s", note)
	r.Recorder.Eventf(lm, object, kind, reason, "ApprovingCertificate", "%s: %s", object.Name, note)
}
