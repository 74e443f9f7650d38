// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/caplv/caplv/api/controlplane/v1alpha1"
)

// expectEvent waits for an Event about the control plane.
func (b *bench) expectEvent(reason, note string) {
	b.t.Helper()
	b.Eventually(func() []string {
		list := &eventsv1.EventList{}
		b.Expect(b.c.List(b.t.Context(), list)).To(Succeed())
		var found []string
		for i := range list.Items {
			if e := &list.Items[i]; e.Regarding.UID == b.cp.UID {
				found = append(found, e.Reason+": "+e.Note)
			}
		}
		return found
	}, soon, 100*time.Millisecond).Should(ContainElement(And(HavePrefix(reason+": "), ContainSubstring(note))))
}

// expectNewToken waits until the kubeconfig has another token, with which the API server answers.
func (b *bench) expectNewToken(before, why string) string {
	b.t.Helper()
	var token string
	b.Eventually(func() string { token = b.token(); return token }, soon, 50*time.Millisecond).ShouldNot(Or(BeEmpty(), Equal(before)))
	b.expectEvent(controlplanev1.TokenRotatedReason, why)
	b.expectCondition(b.cp, controlplanev1.AvailableCondition, "True/APIServerReachable")
	return token
}

func TestTheTokenIsRotated(t *testing.T) {
	t.Parallel()
	b := newBench(t, controlplanev1.LibvirtExternalControlPlaneSpec{TokenLifetimeSeconds: 3600}, nil)
	first := b.expectNewToken("", "there was no kubeconfig")
	s, err := b.kubeconfig()
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(s.Type).To(Equal(clusterv1.ClusterSecretType))
	b.Expect(s.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "prod"))
	// The conditions are written first.
	b.Eventually(func(g Gomega) {
		g.Expect(b.read(b.cp)).To(Succeed())
		g.Expect(b.cp.Status.TokenRotationTime).NotTo(BeNil())
		g.Expect(b.cp.Status.TokenExpirationTime.Sub(b.cp.Status.TokenRotationTime.Time)).To(Equal(12*time.Minute), "a fifth of an hour is left")
	}, soon, 50*time.Millisecond).Should(Succeed())

	b.poke()
	b.Consistently(b.token, time.Second, 100*time.Millisecond).Should(Equal(first), "it is not replaced without need")

	t.Run("when four fifths of its lifetime have passed", func(t *testing.T) {
		suite.ahead.Store(int64(49 * time.Minute))
		t.Cleanup(func() { suite.ahead.Store(0) })
		b.poke()
		b.expectNewToken(first, "the old one expires at")
	})
	t.Run("when the Secret was deleted", func(*testing.T) {
		before := b.token()
		s, err := b.kubeconfig()
		b.Expect(err).NotTo(HaveOccurred())
		b.Expect(b.c.Delete(b.t.Context(), s)).To(Succeed())
		b.poke()
		b.expectNewToken(before, "there was no kubeconfig")
	})
	t.Run("when somebody has put something else there", func(*testing.T) {
		before := b.token()
		s, err := b.kubeconfig()
		b.Expect(err).NotTo(HaveOccurred())
		b.patch(s, func() { s.Data["value"] = []byte("something else") })
		b.poke()
		b.expectNewToken(before, "somebody had changed the kubeconfig")
	})
	t.Run("when the API server refuses it", func(*testing.T) {
		genuine := b.token()
		parts := strings.Split(genuine, ".")
		forged := parts[0] + "." + parts[1] + "." + base64.RawURLEncoding.EncodeToString([]byte("forged"))
		s, err := b.kubeconfig()
		b.Expect(err).NotTo(HaveOccurred())
		b.patch(s, func() { s.Data["value"] = []byte(strings.ReplaceAll(string(s.Data["value"]), genuine, forged)) })
		b.poke()
		b.expectNewToken(forged, "the API server refused the old one")
	})
	t.Run("but not when only the rest was changed, which is put back", func(*testing.T) {
		before := b.token()
		s, err := b.kubeconfig()
		b.Expect(err).NotTo(HaveOccurred())
		good := s.DeepCopy()
		b.patch(s, func() {
			s.Labels, s.OwnerReferences = nil, nil
			s.Data["value"] = []byte(strings.ReplaceAll(string(s.Data["value"]), suite.config.Host, "https://elsewhere.example.com"))
			s.Data["more"] = []byte("x")
		})
		b.poke()
		b.Eventually(func(g Gomega) {
			g.Expect(b.read(s)).To(Succeed())
			g.Expect(s.Labels).To(Equal(good.Labels))
			g.Expect(s.OwnerReferences).To(Equal(good.OwnerReferences))
			g.Expect(s.Data).To(Equal(good.Data))
		}, soon, 50*time.Millisecond).Should(Succeed())
		b.Expect(b.token()).To(Equal(before))
	})
}

// TestTheTokenMayDoWhatClusterAPIDoesAndNothingElse asks the API server as the holder of the Secret.
func TestTheTokenMayDoWhatClusterAPIDoesAndNothingElse(t *testing.T) {
	t.Parallel()
	b := newBench(t, controlplanev1.LibvirtExternalControlPlaneSpec{}, nil)
	message := b.expectCondition(b.cp, controlplanev1.KubeconfigAvailableCondition, "True/KubeconfigMaintained")
	b.Expect(message).To(ContainSubstring("caplv-system/caplv-cluster-api"))
	s, err := b.kubeconfig()
	b.Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(t.TempDir(), "kubeconfig")
	b.Expect(os.WriteFile(path, s.Data["value"], 0o600)).To(Succeed())
	_, err = suite.cp.Kubectl(t.Context(), "--kubeconfig="+path, "get", "nodes")
	b.Expect(err).NotTo(HaveOccurred())
	_, err = suite.cp.Kubectl(t.Context(), "--kubeconfig="+path, "get", "secrets", "-n", b.namespace)
	b.Expect(err).To(MatchError(ContainSubstring("Forbidden")))
	for _, may := range []string{
		"yes watch nodes", "yes patch nodes", "yes delete nodes", "yes list pods", "yes create pods/eviction", "yes get daemonsets.apps", "yes list volumeattachments.storage.k8s.io",
		"no create nodes", "no update nodes", "no patch nodes/status", "no create pods", "no delete pods", "no get pods/log", "no create pods/exec",
		"no get secrets", "no list configmaps", "no create serviceaccounts/token", "no create clusterrolebindings.rbac.authorization.k8s.io",
		"no get machines.cluster.x-k8s.io", "no get libvirtmachines.infrastructure.cluster.x-k8s.io", "no approve certificatesigningrequests.certificates.k8s.io",
		"no impersonate users", "no get nodes/proxy", "no get /metrics",
	} {
		// kubectl's exit status says no as well.
		words := strings.Fields(may)
		args := append([]string{"--kubeconfig=" + path, "auth", "can-i"}, words[1:]...)
		if resource, subresource, ok := strings.Cut(words[2], "/"); ok && resource != "" {
			args = append(args[:len(args)-1], resource, "--subresource="+subresource)
		}
		out, _ := suite.cp.Kubectl(t.Context(), args...)
		b.Expect(strings.TrimSpace(out)).To(Equal(words[0]), may)
	}
}

// TestTheOperatorIssuesTokensOfThatAccountOnly asks for the operator's rights.
func TestTheOperatorIssuesTokensOfThatAccountOnly(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	for request, want := range map[string]string{
		"create serviceaccounts/caplv-cluster-api --subresource=token -n caplv-system": "yes",
		"create serviceaccounts/caplv-manager --subresource=token -n caplv-system":     "no",
		"create serviceaccounts/caplv-cluster-api --subresource=token -n default":      "no",
		"patch secrets": "yes", "update secrets": "no", "list secrets": "no", "watch secrets": "no", "delete secrets": "no",
		"create libvirtexternalcontrolplanes.controlplane.cluster.x-k8s.io": "no",
	} {
		out, _ := suite.cp.Kubectl(t.Context(), append([]string{"auth", "can-i", "--as=system:serviceaccount:caplv-system:caplv-manager"}, strings.Fields(request)...)...)
		g.Expect(strings.TrimSpace(out)).To(Equal(want), request)
	}
}

func TestSomebodyElsesKubeconfigIsLeftAlone(t *testing.T) {
	t.Parallel()
	kubeconfig := "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], " +
		"clusters: [{name: c, cluster: {server: 'https://elsewhere.example.com'}}], users: [{name: u, user: {tokenFile: /etc/passwd}}]}"
	for _, row := range []struct {
		name   string
		labels map[string]string
		value  string
		want   string
	}{
		{"used", map[string]string{clusterv1.ClusterNameLabel: "prod"}, kubeconfig, "True/KubeconfigProvided"},
		{"without the label that Cluster API looks for", nil, kubeconfig, "False/KubeconfigInvalid"},
		{"empty", map[string]string{clusterv1.ClusterNameLabel: "prod"}, "", "False/KubeconfigInvalid"},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, controlplanev1.LibvirtExternalControlPlaneSpec{}, func(b *bench) {
				b.create(&corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "prod-kubeconfig", Labels: row.labels}, StringData: map[string]string{"value": row.value},
				})
			})
			message := b.expectCondition(b.cp, controlplanev1.KubeconfigAvailableCondition, row.want)
			b.Expect(message).To(ContainSubstring("delete it to have one made"))
			if strings.HasPrefix(row.want, "True") {
				b.expectCondition(b.cp, controlplanev1.AvailableCondition, "True/APIServerReachable")
			} else {
				b.expectCondition(b.cp, controlplanev1.AvailableCondition, "False/WaitingForKubeconfig")
				b.Expect(b.cp.Status.Initialization.ControlPlaneInitialized).To(BeNil())
			}
			s, err := b.kubeconfig()
			b.Expect(err).NotTo(HaveOccurred())
			b.Expect(string(s.Data["value"])).To(Equal(row.value))
			b.Expect(s.OwnerReferences).To(BeEmpty())
		})
	}
}

func TestTheTokenIsNotSentToAServerWithAnotherAuthority(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	other := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer other.Close()
	b := newBench(t, controlplanev1.LibvirtExternalControlPlaneSpec{Server: other.URL}, nil)
	message := b.expectCondition(b.cp, controlplanev1.AvailableCondition, "False/APIServerUnreachable")
	b.Expect(message).To(ContainSubstring("certificate"))
	b.Expect(requests.Load()).To(BeZero())
	b.Expect(b.cp.Status.Initialization.ControlPlaneInitialized).To(BeNil())

	b.patch(b.cp, func() { b.cp.Spec.Server = suite.config.Host })
	b.expectCondition(b.cp, controlplanev1.AvailableCondition, "True/APIServerReachable")
}

func TestPaused(t *testing.T) {
	t.Parallel()
	b := newBench(t, controlplanev1.LibvirtExternalControlPlaneSpec{}, nil)
	b.expectCondition(b.cp, controlplanev1.AvailableCondition, "True/APIServerReachable")
	b.patch(b.cluster, func() { b.cluster.Spec.Paused = new(true) })
	b.expectCondition(b.cp, clusterv1.PausedCondition, "True/Paused")
	s, err := b.kubeconfig()
	b.Expect(err).NotTo(HaveOccurred())
	b.Expect(b.c.Delete(t.Context(), s)).To(Succeed())
	b.poke()
	b.Consistently(func() bool { return apierrors.IsNotFound(b.read(s)) }, time.Second, 100*time.Millisecond).Should(BeTrue())
	b.patch(b.cluster, func() { b.cluster.Spec.Paused = nil })
	b.Eventually(b.token, soon, 50*time.Millisecond).ShouldNot(BeEmpty())
}

func TestFieldsAreValidated(t *testing.T) {
	t.Parallel()
	for server, want := range map[string]string{
		"https://api.example.com:6443": "", "https://[2001:db8::1]:6443/": "", "https://172.30.0.1": "",
		"http://api.example.com": "must be a URL like", "api.example.com:6443": "must be a URL like", "https://": "must be a URL like",
		"https://me:secret@api.example.com": "must be a URL like", "https://api.example.com/path": "neither path nor query", "https://api.example.com?q=1": "neither path nor query",
	} {
		t.Run(server, func(t *testing.T) {
			g := NewWithT(t)
			err := suite.cp.Apply(t.Context(), fmt.Appendf(nil, "apiVersion: controlplane.cluster.x-k8s.io/v1alpha1\nkind: LibvirtExternalControlPlane\n"+
				"metadata: {name: valid, namespace: default}\nspec: {server: %q}\n", server))
			if want == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(want)))
			}
		})
	}
	for seconds, ok := range map[int]bool{599: false, 600: true, 2592000: true, 2592001: false} {
		err := suite.cp.Apply(t.Context(), fmt.Appendf(nil, "apiVersion: controlplane.cluster.x-k8s.io/v1alpha1\nkind: LibvirtExternalControlPlane\n"+
			"metadata: {name: valid, namespace: default}\nspec: {tokenLifetimeSeconds: %d}\n", seconds))
		NewWithT(t).Expect(err == nil).To(Equal(ok), "%d: %v", seconds, err)
	}
}
