// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Controllers of kube-controller-manager.
const (
	// SigningController issues the certificates of approved requests.
	SigningController = "certificatesigningrequest-signing-controller"
	// DisruptionController counts which Pods disruption budgets allow to evict.
	DisruptionController = "disruption-controller"
)

// serveNodes has kube-apiserver show a certificate for Options.NodesServerName and accept bootstrap tokens. A kubelet forgets a
// tls-server-name when it joins, so that the name has to be in the URL, and the certificate of its own.
func (cp *ControlPlane) serveNodes() error {
	name := cp.options.NodesServerName
	if name == "" {
		return nil
	}
	certificate, key, err := certutil.GenerateSelfSignedCertKey(name, nil, nil)
	if err != nil {
		return fmt.Errorf("making a certificate of %s: %w", name, err)
	}
	keyPath := cp.pki("nodes.key")
	if err := errors.Join(os.WriteFile(cp.nodesCertificate(), certificate, 0o600), os.WriteFile(keyPath, key, 0o600)); err != nil {
		return err
	}
	cp.env.ControlPlane.GetAPIServer().Configure().
		Set("tls-sni-cert-key", cp.nodesCertificate()+","+keyPath+":"+name).
		Set("enable-bootstrap-token-auth", "true")
	return nil
}

func (cp *ControlPlane) pki(file string) string { return filepath.Join(cp.options.Dir, "pki", file) }

func (cp *ControlPlane) nodesCertificate() string { return cp.pki("nodes.crt") }

// BootstrapKubeconfig makes a bootstrap token, allows those who have one to ask for a kubelet's certificate, and returns the
// kubeconfig with which a machine joins. It reaches kube-apiserver as Options.NodesServerName, which is required, on a port.
func (cp *ControlPlane) BootstrapKubeconfig(ctx context.Context, port string) ([]byte, error) {
	if cp.options.NodesServerName == "" {
		return nil, errors.New("Options.NodesServerName is required")
	}
	authority, err := os.ReadFile(cp.nodesCertificate())
	if err != nil {
		return nil, err
	}
	// Of 26 letters and 6 digits, and so of what a token consists of.
	text := strings.ToLower(rand.Text())
	id, secret := text[:6], text[6:22]
	token := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true"},
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "caplv-bench-bootstrappers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-bootstrapper"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:bootstrappers"}},
	}
	for _, object := range []client.Object{token, binding} {
		if err := cp.client.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
		}
	}
	const cluster, user = "bench", "bootstrap"
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{
		Server: "https://" + net.JoinHostPort(cp.options.NodesServerName, port), CertificateAuthorityData: authority,
	}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: id + "." + secret}
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user}
	config.CurrentContext = cluster
	return clientcmd.Write(*config)
}

// StartControllerManager runs controllers of kube-controller-manager, and no others. Its signing authority is made for this run:
// kube-apiserver accepts client certificates of it from then on. Stop ends it, if nobody has before.
func (cp *ControlPlane) StartControllerManager(ctx context.Context, controllers ...string) (*Process, error) {
	binary, err := toolPath(ctx, "kube-controller-manager")
	if err != nil {
		return nil, err
	}
	if err := cp.makeSigner(); err != nil {
		return nil, fmt.Errorf("making the signing authority: %w", err)
	}
	return cp.StartProcess("kube-controller-manager", binary, nil,
		"--kubeconfig="+cp.kubeconfig, "--leader-elect=false", "--secure-port=0", "--controllers="+strings.Join(controllers, ","),
		"--cluster-signing-cert-file="+cp.SigningAuthority(), "--cluster-signing-key-file="+cp.pki("signer.key"), "--v=2")
}

// SigningAuthority is the path of the certificate of the authority that StartControllerManager signs with.
func (cp *ControlPlane) SigningAuthority() string { return cp.pki("signer.crt") }

// makeSigner makes the authority, unless it is there. kube-apiserver watches its file of clients' authorities.
func (cp *ControlPlane) makeSigner() error {
	if _, err := os.Stat(cp.SigningAuthority()); err == nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	authority, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "caplv-bench-signer"}, key)
	if err != nil {
		return err
	}
	certificate, err := certutil.EncodeCertificates(authority)
	if err != nil {
		return err
	}
	clients, err := os.OpenFile(cp.pki("client-cert-auth-ca.crt"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = clients.Write(certificate)
	return errors.Join(err, clients.Close(), os.WriteFile(cp.pki("signer.key"), encoded, 0o600), os.WriteFile(cp.SigningAuthority(), certificate, 0o600))
}
