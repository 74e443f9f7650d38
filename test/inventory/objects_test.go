// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

const (
	zone        = "topology.kubernetes.io/zone"
	fingerprint = "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU"
	// crowd is how many hosts namespace "crowd" has.
	crowd = 25
	// attack would run a command if it were taken for a template.
	attack = "{{ lookup('pipe', 'touch /tmp/caplv-inventory-attack') }}"
)

func host(namespace, name, uri string, labels map[string]string) *infrav1.LibvirtHost {
	return &infrav1.LibvirtHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec:       infrav1.LibvirtHostSpec{URI: uri, SecretRef: infrav1.LocalSecretReference{Name: "key"}},
	}
}

func ready(status metav1.ConditionStatus, reason, message string) []metav1.Condition {
	return []metav1.Condition{{Type: infrav1.HostReadyCondition, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.Now()}}
}

// createObjects makes the hosts, and the service account that may list those of site-a.
func createObjects(ctx context.Context) error {
	alpha := host("site-a", "alpha", "qemu+ssh://caplv@10.0.0.1:2222/system", map[string]string{zone: "rack-1", "environment": "production"})
	alpha.Status = infrav1.LibvirtHostStatus{
		Conditions: ready(metav1.ConditionTrue, infrav1.HostReadyReason, "fine"), HostKeyFingerprint: fingerprint, LibvirtVersion: "9.0.0",
		MachineRef: &infrav1.MachineClaim{Name: "worker-1", UID: "1"}, MachineCount: 1,
		Setup: &infrav1.HostSetup{RolesVersion: "1.2.3", Mode: infrav1.HostModeSystem, Account: "caplv"},
	}
	beta := host("site-a", "beta", "qemu+ssh://svc@[fd00::2]/session", map[string]string{"environment": "test"})
	beta.Spec.VirtType = infrav1.VirtTypeQEMU
	beta.Status.Conditions = ready(metav1.ConditionFalse, infrav1.UnreachableReason, attack)
	gamma := host("site-b", "gamma", "qemu+ssh://caplv@gamma.example.com/system", nil)
	gamma.Annotations = map[string]string{"note": attack}
	gamma.Status.LibvirtVersion = attack

	all := []*infrav1.LibvirtHost{alpha, beta, gamma}
	for i := range crowd {
		all = append(all, host("crowd", fmt.Sprintf("host-%02d", i), fmt.Sprintf("qemu+ssh://caplv@10.1.0.%d/system", i+1), nil))
	}
	for _, namespace := range []string{"site-a", "site-b", "crowd"} {
		if err := suite.cp.Client().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
			return err
		}
	}
	for _, h := range all {
		status := h.Status
		if err := suite.cp.Client().Create(ctx, h); err != nil {
			return err
		}
		h.Status = status
		if err := suite.cp.Client().Status().Update(ctx, h); err != nil {
			return err
		}
	}
	return createViewer(ctx)
}

func createViewer(ctx context.Context) error {
	meta := metav1.ObjectMeta{Namespace: "site-a", Name: "viewer"}
	for _, object := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: meta},
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{infrav1.GroupVersion.Group}, Resources: []string{"libvirthosts"}, Verbs: []string{"list"}}}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: meta.Namespace, Name: meta.Name}},
		},
	} {
		if err := suite.cp.Client().Create(ctx, object); err != nil {
			return err
		}
	}
	var err error
	suite.viewer, err = suite.cp.ServiceAccountKubeconfig(ctx, meta.Namespace, meta.Name)
	return err
}
