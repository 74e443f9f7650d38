// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"crypto/tls"
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// The names of the files in the directory of certificates, which are those of a Secret of type kubernetes.io/tls.
const (
	certFile = "tls.crt"
	keyFile  = "tls.key"
)

// SetupWithManager registers the webhooks of every kind at the manager's webhook server. They list LibvirtMachines by
// index.MachineByHost, which the caller adds.
func SetupWithManager(mgr ctrl.Manager) error {
	if err := register(mgr, &infrav1.LibvirtMachine{}, &Machine{Client: mgr.GetClient(), APIReader: mgr.GetAPIReader()}); err != nil {
		return err
	}
	if err := register(mgr, &infrav1.LibvirtHost{}, &Host{Client: mgr.GetClient()}); err != nil {
		return err
	}
	return register(mgr, &infrav1.LibvirtCluster{}, &Cluster{})
}

func register[T runtime.Object](mgr ctrl.Manager, object T, validator admission.Validator[T]) error {
	if err := ctrl.NewWebhookManagedBy(mgr, object).WithValidator(validator).Complete(); err != nil {
		return fmt.Errorf("registering the webhook for %T: %w", object, err)
	}
	return nil
}

// CheckCertificate returns an error unless dir holds a certificate and its key, as tls.crt and tls.key. The server would
// only find that out once everything else has been started.
func CheckCertificate(dir string) error {
	if _, err := tls.LoadX509KeyPair(filepath.Join(dir, certFile), filepath.Join(dir, keyFile)); err != nil {
		return fmt.Errorf("reading the certificate of the webhooks: %w", err)
	}
	return nil
}
