// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// secretSuffix and kubeconfigKey are where the contract for control planes wants the kubeconfig: Secret <cluster>-kubeconfig, key value.
const (
	secretSuffix  = "-kubeconfig" //nolint:gosec // The end of a name.
	kubeconfigKey = "value"
)

// access is what a kubeconfig of ours consists of.
type access struct {
	// cluster names the entries of the kubeconfig.
	cluster string
	// server is a URL.
	server string
	// ca holds certificates as PEM; without them, the client's system decides whom to trust.
	ca    []byte
	token string
}

// kubeconfig is always the same for the same access, so that a difference tells that somebody has changed it.
func (a access) kubeconfig() ([]byte, error) {
	const user = "cluster-api"
	config := clientcmdapi.NewConfig()
	config.Clusters[a.cluster] = &clientcmdapi.Cluster{Server: a.server, CertificateAuthorityData: a.ca}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: a.token}
	config.Contexts[a.cluster] = &clientcmdapi.Context{Cluster: a.cluster, AuthInfo: user}
	config.CurrentContext = a.cluster
	return clientcmd.Write(*config)
}

// userOf is whom a kubeconfig's current context acts as; an error says why Cluster API could not use it. No file that it refers to
// is opened.
func userOf(kubeconfig []byte) (*clientcmdapi.AuthInfo, error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		// The error may quote what was in the Secret.
		return nil, errors.New("it is no kubeconfig")
	}
	context := config.Contexts[config.CurrentContext]
	if context == nil {
		return nil, errors.New("it has no current context")
	}
	cluster, user := config.Clusters[context.Cluster], config.AuthInfos[context.AuthInfo]
	if cluster == nil || cluster.Server == "" || user == nil {
		return nil, errors.New("its current context has no server or no user")
	}
	return user, nil
}

// claims are those of a service account's token that matter here. They are read without checking the signature: a token
// that is not genuine is found out by using it.
type claims struct {
	Subject   string `json:"sub"`
	IssuedAt  int64  `json:"iat"`
	ExpiresAt int64  `json:"exp"`
}

func parseClaims(token string) (claims, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return claims{}, errors.New("not a JSON Web Token")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return claims{}, errors.New("not a JSON Web Token")
	}
	var c claims
	if err := json.Unmarshal(payload, &c); err != nil {
		return claims{}, errors.New("not a JSON Web Token")
	}
	if c.ExpiresAt <= c.IssuedAt {
		return claims{}, errors.New("a token without a lifetime")
	}
	return c, nil
}

func (c claims) expiration() time.Time { return time.Unix(c.ExpiresAt, 0) }

// rotation is when four fifths have passed of the lifetime that the token has, or that it should have where that is shorter.
func (c claims) rotation(lifetime time.Duration) time.Time {
	issued := time.Unix(c.IssuedAt, 0)
	return issued.Add(min(c.expiration().Sub(issued), lifetime) * 4 / 5)
}

// decision says what to do about the Secret of a kubeconfig.
type decision int

const (
	// leave: the Secret is somebody else's.
	leave decision = iota
	// keep: the Secret is ours and as it should be.
	keep
	// rewrite: the token is good, but something else is not as it should be.
	rewrite
	// renew: a token is needed.
	renew
)

// wish is how the Secret should be.
type wish struct {
	access  // without its token
	account string
	// lifetime is that of tokens.
	lifetime time.Duration
}

// decide compares a Secret with how it should be; nil is one that does not exist. controlled says whether its controller
// is the object that is reconciled. It returns the token to keep where there is one, and why there is something to do.
func decide(found *corev1.Secret, controlled bool, want wish, now time.Time) (what decision, token, why string) {
	if found == nil {
		return renew, "", "there was no kubeconfig"
	}
	user, err := userOf(found.Data[kubeconfigKey])
	var has claims
	if err == nil {
		has, err = parseClaims(user.Token)
	}
	ours := err == nil && has.Subject == "system:serviceaccount:"+strings.ReplaceAll(want.account, "/", ":")
	switch {
	case !controlled && !ours:
		return leave, "", ""
	case !ours:
		return renew, "", "somebody had changed the kubeconfig"
	case !now.Before(has.rotation(want.lifetime)):
		return renew, "", fmt.Sprintf("the old one expires at %s", has.expiration().UTC().Format(time.RFC3339))
	}
	want.token = user.Token
	content, err := want.kubeconfig()
	if err != nil || !controlled || found.Labels[clusterv1.ClusterNameLabel] != want.cluster ||
		len(found.Data) != 1 || !bytes.Equal(found.Data[kubeconfigKey], content) {
		return rewrite, user.Token, "somebody had changed it, or the API server's address or authority has changed"
	}
	return keep, user.Token, ""
}

// checkForeign returns why Cluster API could not use a Secret that is somebody else's.
func checkForeign(found *corev1.Secret, cluster string) error {
	if found.Labels[clusterv1.ClusterNameLabel] != cluster {
		return fmt.Errorf("Cluster API does not see it, because it has no label %s=%s", clusterv1.ClusterNameLabel, cluster) //nolint:staticcheck // A name.
	}
	_, err := userOf(found.Data[kubeconfigKey])
	return err
}
