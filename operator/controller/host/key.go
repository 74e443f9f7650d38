// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/hostsetup"
	"github.com/caplv/caplv/operator/hosturi"
)

// keyMadeReason is of the Event that tells of a key pair.
const keyMadeReason = "SSHKeyCreated"

// desired completes the view with what is wanted, which begins with the public half of the operator's key, and returns the variables for it.
func (r *Reconciler) desired(ctx context.Context, v *hostsetup.View) (map[string]any, error) {
	lh := v.Host
	versions := []string{r.version(ctx, lh, lh.Spec.Bootstrap.SecretRef.Name)}
	if awx := lh.Spec.Bootstrap.AWX; awx != nil {
		versions = append(versions, r.version(ctx, lh, awx.SecretRef.Name))
	}
	var err error
	if !lh.DeletionTimestamp.IsZero() {
		// What is taken away needs no key of the service account.
		v.Inputs, err = hostsetup.Inputs(lh, versions...)
		return nil, err
	}
	uri, err := hosturi.Parse(lh.Spec.URI)
	if err != nil {
		return nil, hosts.NewConfigError(infrav1.InvalidURIReason, "spec."+err.Error())
	}
	account, err := r.accountKey(ctx, lh)
	if err != nil {
		return nil, err
	}
	public, err := hostsetup.PublicHalf(account.Data[infrav1.SSHPrivateKeySecretKey])
	if err != nil {
		return nil, hosts.NewConfigError(infrav1.InvalidPrivateKeyReason, fmt.Sprintf("Secret %s of spec.secretRef: %v", lh.Spec.SecretRef.Name, err))
	}
	variables := hostsetup.Variables(lh, uri, hostsetup.AuthorizedKeys(public, lh.Spec.Bootstrap.AuthorizedKeys))
	if v.Desired, err = hostsetup.DesiredState(variables); err != nil {
		return nil, err
	}
	v.Inputs, err = hostsetup.Inputs(lh, append(versions, string(account.UID)+"/"+account.ResourceVersion)...)
	return variables, err
}

// version tells one content of a Secret from another. It is empty for one that cannot be read, which is complained about where it is needed.
func (r *Reconciler) version(ctx context.Context, lh *infrav1.LibvirtHost, name string) string {
	secret := &corev1.Secret{}
	if name == "" || r.APIReader.Get(ctx, client.ObjectKey{Namespace: lh.Namespace, Name: name}, secret) != nil {
		return ""
	}
	return string(secret.UID) + "/" + secret.ResourceVersion
}

// accountKey returns the Secret with the key of the service account, and makes it where there is none and the operator may set the host up.
func (r *Reconciler) accountKey(ctx context.Context, lh *infrav1.LibvirtHost) (*corev1.Secret, error) {
	name := client.ObjectKey{Namespace: lh.Namespace, Name: lh.Spec.SecretRef.Name}
	secret := &corev1.Secret{}
	err := r.APIReader.Get(ctx, name, secret)
	b := lh.Spec.Bootstrap
	switch {
	case apierrors.IsNotFound(err) && b.Mode == infrav1.BootstrapCheck:
		return nil, hosts.NewConfigError(infrav1.SecretNotFoundReason, fmt.Sprintf(
			"Secret %s of spec.secretRef does not exist; create it with the SSH private key of the service account, or set spec.bootstrap.mode to apply to have it made", name))
	case apierrors.IsNotFound(err) && b.Backend != infrav1.BackendAWX && name.Name == b.SecretRef.Name:
		return nil, hosts.NewConfigError(infrav1.SecretNotFoundReason, fmt.Sprintf(
			"Secret %s, which spec.secretRef and spec.bootstrap.secretRef name, does not exist; create it with an SSH private key that may log in already", name))
	case apierrors.IsNotFound(err):
		return r.makeKey(ctx, lh, name)
	case err != nil:
		return nil, fmt.Errorf("reading Secret %s: %w", name, err)
	case len(secret.Data[infrav1.SSHPrivateKeySecretKey]) == 0:
		return nil, hosts.NewConfigError(infrav1.SecretNotFoundReason, fmt.Sprintf(
			"Secret %s of spec.secretRef has no key %q; it must hold the SSH private key", name, infrav1.SSHPrivateKeySecretKey))
	}
	return secret, nil
}

// makeKey makes a key pair. Where somebody else is faster, his Secret is found by the next attempt.
func (r *Reconciler) makeKey(ctx context.Context, lh *infrav1.LibvirtHost, name client.ObjectKey) (*corev1.Secret, error) {
	pair, err := hostsetup.NewKeyPair("caplv@" + hostsetup.HostName(lh))
	if err != nil {
		return nil, fmt.Errorf("making an SSH key: %w", err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, Labels: map[string]string{clusterctlv1.ClusterctlMoveLabel: ""}},
		Type:       corev1.SecretTypeSSHAuth,
		Data:       map[string][]byte{infrav1.SSHPrivateKeySecretKey: pair.Private, infrav1.SSHPublicKeySecretKey: pair.Public},
	}
	if err := controllerutil.SetOwnerReference(lh, secret, r.Client.Scheme()); err != nil {
		return nil, err
	}
	if err := r.Client.Create(ctx, secret); err != nil {
		return nil, fmt.Errorf("creating Secret %s with an SSH key: %w", name, err)
	}
	r.Recorder.Eventf(lh, secret, corev1.EventTypeNormal, keyMadeReason, "CreatingKey", "Secret %s was created with a new SSH key, which the roles let in", name.Name)
	return secret, nil
}
