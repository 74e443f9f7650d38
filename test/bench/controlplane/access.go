// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// tokenLifetime of a service account's kubeconfig; longer than any test run.
const tokenLifetime = 12 * time.Hour

// ServiceAccountKubeconfig returns the path of a kubeconfig, a file of mode 0600, that acts as an existing service
// account, with a token that is valid for 12 hours. It is how a manager runs under the roles that it is shipped with.
func (cp *ControlPlane) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	seconds := int64(tokenLifetime / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if err := cp.client.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("requesting a token for service account %s/%s: %w", namespace, name, err)
	}

	const cluster = "bench"
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{Server: cp.config.Host, CertificateAuthorityData: cp.config.CAData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	config.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: name, Namespace: namespace}
	config.CurrentContext = cluster
	content, err := clientcmd.Write(*config)
	if err != nil {
		return "", err
	}
	path := filepath.Join(cp.options.Dir, fmt.Sprintf("%s.%s.kubeconfig", namespace, name))
	return path, os.WriteFile(path, content, 0o600)
}

// Kubectl runs kubectl as the administrator and returns its standard output; the error holds its standard error. A
// --kubeconfig among args makes it act as somebody else.
func (cp *ControlPlane) Kubectl(ctx context.Context, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, cp.kubectl, args...)
	// HOME keeps kubectl's discovery cache out of the caller's home.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cp.kubeconfig, "HOME="+cp.options.Dir)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}
