// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	controlplanev1 "github.com/caplv/caplv/api/controlplane/v1alpha1"
	"github.com/caplv/caplv/operator/controller/wake"
)

// scope is one reconcile.
type scope struct {
	*Reconciler
	cp *controlplanev1.LibvirtExternalControlPlane
	// cluster is the name of the owning Cluster.
	cluster string
	// maintained is set by reconcileKubeconfig: the Secret is ours.
	maintained bool
}

// reconcileKubeconfig brings the Secret to how it should be, with a new token when one is due or when force says so, and
// returns how to reach the API server for a check: as the Secret says, or, where the Secret is somebody else's, as the
// operator does. Somebody else's kubeconfig could make it read its own files or call any address. It returns nil when
// there is no kubeconfig; the condition says why.
func (s *scope) reconcileKubeconfig(ctx context.Context, force bool) (*rest.Config, error) {
	want, err := s.wish()
	if err != nil {
		return nil, err
	}
	found := &corev1.Secret{}
	key := client.ObjectKey{Namespace: s.cp.Namespace, Name: s.cluster + secretSuffix}
	if err := s.APIReader.Get(ctx, key, found); apierrors.IsNotFound(err) {
		found = nil
	} else if err != nil {
		return nil, err
	}
	what, token, why := decide(found, found != nil && metav1.IsControlledBy(found, s.cp), want, s.Clock())
	s.maintained = what != leave
	if !s.maintained {
		return s.foreign(found), nil
	}
	if force {
		what, why = renew, "the API server refused the old one"
	}
	if what == renew {
		if token, err = s.requestToken(ctx); err != nil {
			s.setKubeconfig(metav1.ConditionFalse, controlplanev1.TokenNotIssuedReason, err.Error())
			return nil, nil
		}
	}
	want.token = token
	if what != keep {
		if err := s.write(ctx, key, found, want); err != nil {
			return nil, err
		}
		ctrl.LoggerFrom(ctx).Info("Wrote the kubeconfig of Cluster API", "Secret", key, "newToken", what == renew, "why", why)
		if what == renew {
			s.Recorder.Eventf(s.cp, nil, corev1.EventTypeNormal, controlplanev1.TokenRotatedReason, "RotatingToken",
				"Secret %s has a new token, because %s", key.Name, why)
		}
	}
	return s.report(key.Name, want), nil
}

// wish is how the Secret should be, without a token. The authorities are those that the operator trusts itself, read anew, as
// their file changes when they are replaced.
func (s *scope) wish() (wish, error) {
	config := rest.CopyConfig(s.Config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return wish{}, fmt.Errorf("reading the certificate authorities of the API server: %w", err)
	}
	server := s.cp.Spec.Server
	if server == "" {
		server = config.Host
	}
	return wish{
		access:   access{cluster: s.cluster, server: server, ca: config.CAData},
		account:  s.ServiceAccount.String(),
		lifetime: s.lifetime(),
	}, nil
}

func (s *scope) lifetime() time.Duration {
	return time.Duration(s.cp.Spec.TokenLifetimeSeconds) * time.Second
}

// requestToken returns a new token of Cluster API's service account.
func (s *scope) requestToken(ctx context.Context) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.ServiceAccount.Namespace, Name: s.ServiceAccount.Name}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(s.cp.Spec.TokenLifetimeSeconds)}}
	if err := s.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("no token for service account %s: %w; operator/config/rbac has the account and the right, --cluster-api-service-account its name",
			s.ServiceAccount, err)
	}
	return request.Status.Token, nil
}

// write creates the Secret or mends it.
func (s *scope) write(ctx context.Context, key client.ObjectKey, found *corev1.Secret, want wish) error {
	content, err := want.kubeconfig()
	if err != nil {
		return err
	}
	object := found.DeepCopy()
	if found == nil {
		object = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Type: clusterv1.ClusterSecretType}
	}
	metav1.SetMetaDataLabel(&object.ObjectMeta, clusterv1.ClusterNameLabel, s.cluster)
	object.Data = map[string][]byte{kubeconfigKey: content}
	if err := controllerutil.SetControllerReference(s.cp, object, s.Client.Scheme()); err != nil {
		return err
	}
	if found == nil {
		return s.Client.Create(ctx, object)
	}
	return s.Client.Patch(ctx, object, client.MergeFromWithOptions(found, client.MergeFromWithOptimisticLock{}))
}

// report says in the status until when the token is valid.
func (s *scope) report(name string, want wish) *rest.Config {
	s.cp.Status.TokenExpirationTime, s.cp.Status.TokenRotationTime = nil, nil
	if has, err := parseClaims(want.token); err == nil {
		s.cp.Status.TokenExpirationTime = new(metav1.NewTime(has.expiration()))
		s.cp.Status.TokenRotationTime = new(metav1.NewTime(has.rotation(want.lifetime)))
	}
	s.setKubeconfig(metav1.ConditionTrue, controlplanev1.KubeconfigMaintainedReason,
		fmt.Sprintf("Secret %s acts as service account %s at %s", name, want.account, want.server))
	return &rest.Config{Host: want.server, BearerToken: want.token, TLSClientConfig: rest.TLSClientConfig{CAData: want.ca}, UserAgent: s.Config.UserAgent}
}

// foreign reports about a Secret that is somebody else's.
func (s *scope) foreign(found *corev1.Secret) *rest.Config {
	s.cp.Status.TokenExpirationTime, s.cp.Status.TokenRotationTime = nil, nil
	if err := checkForeign(found, s.cluster); err != nil {
		s.setKubeconfig(metav1.ConditionFalse, controlplanev1.KubeconfigInvalidReason,
			fmt.Sprintf("Secret %s is not this object's, and %v; mend it, or delete it to have one made", found.Name, err))
		return nil
	}
	s.setKubeconfig(metav1.ConditionTrue, controlplanev1.KubeconfigProvidedReason,
		fmt.Sprintf("Secret %s is not this object's and is used as it is; delete it to have one made", found.Name))
	return s.Config
}

func (s *scope) setKubeconfig(status metav1.ConditionStatus, reason, message string) {
	conditions.Set(s.cp, metav1.Condition{Type: controlplanev1.KubeconfigAvailableCondition, Status: status, Reason: reason, Message: message})
}

func (s *scope) retryAfter() time.Duration {
	return wake.Jitter(wake.RetryAfter(conditions.Get(s.cp, controlplanev1.AvailableCondition), s.Clock(), checkInterval))
}

// nextCheck is when the token is due, or earlier.
func (s *scope) nextCheck() time.Duration {
	next := wake.Jitter(checkInterval)
	if due := s.cp.Status.TokenRotationTime; due != nil {
		next = min(next, max(due.Sub(s.Clock()), time.Second))
	}
	return next
}
