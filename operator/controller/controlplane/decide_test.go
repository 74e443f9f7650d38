// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"encoding/base64"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

const subject = "system:serviceaccount:caplv-system:caplv-cluster-api"

var issued = time.Unix(1_700_000_000, 0)

// token is one that was issued at issued, for a lifetime.
func token(subject string, lifetime time.Duration) string {
	payload := fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d}`, subject, issued.Unix(), issued.Add(lifetime).Unix())
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
}

func desired() wish {
	return wish{
		access:  access{cluster: "prod", server: "https://api.example.com:6443", ca: []byte("PEM")},
		account: "caplv-system/caplv-cluster-api", lifetime: time.Hour,
	}
}

// secret is one that is as it should be.
func secret(g Gomega, token string) *corev1.Secret {
	a := desired().access
	a.token = token
	content, err := a.kubeconfig()
	g.Expect(err).NotTo(HaveOccurred())
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "prod-kubeconfig", Labels: map[string]string{clusterv1.ClusterNameLabel: "prod"}},
		Data:       map[string][]byte{"value": content},
	}
}

func TestDecide(t *testing.T) {
	const good, foreign = true, false
	valid, another := token(subject, time.Hour), token("system:serviceaccount:default:default", time.Hour)
	for _, row := range []struct {
		name       string
		token      string
		change     func(*corev1.Secret)
		controlled bool
		after      time.Duration
		want       decision
	}{
		{"ours, with a young token, stays", valid, nil, good, 47 * time.Minute, keep},
		{"four fifths of an hour are 48 minutes", valid, nil, good, 48 * time.Minute, renew},
		{"a token that is valid for longer than is wished goes with the wish", token(subject, 10*time.Hour), nil, good, 48 * time.Minute, renew},
		{"a token that the API server made shorter goes in time", token(subject, 10*time.Minute), nil, good, 8 * time.Minute, renew},
		{"an expired token goes", valid, nil, good, 2 * time.Hour, renew},
		{"another account's token in our Secret goes", another, nil, good, 0, renew},
		{"something else in our Secret goes", "opaque", nil, good, 0, renew},
		{"another label is put right", valid, func(s *corev1.Secret) { s.Labels = nil }, good, 0, rewrite},
		{"one more key is removed", valid, func(s *corev1.Secret) { s.Data["more"] = nil }, good, 0, rewrite},
		{"our token without an owner is an object's that was restored from a backup", valid, nil, foreign, 0, rewrite},
		{"another account's token without an owner is somebody else's", another, nil, foreign, 0, leave},
		{"no kubeconfig without an owner is somebody else's", valid, func(s *corev1.Secret) { s.Data = nil }, foreign, 0, leave},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			s := secret(g, row.token)
			if row.change != nil {
				row.change(s)
			}
			got, kept, why := decide(s, row.controlled, desired(), issued.Add(row.after))
			g.Expect(got).To(Equal(row.want))
			keeps, isRight := kept != "", why == ""
			g.Expect(keeps).To(Equal(row.want == keep || row.want == rewrite))
			g.Expect(isRight).To(Equal(row.want == keep || row.want == leave), why)
			g.Expect(why).NotTo(ContainSubstring(row.token))
		})
	}
}

// FuzzDecide feeds Secrets that others have written: nothing may panic, and whatever is no kubeconfig with a token of ours is
// never taken for one.
func FuzzDecide(f *testing.F) {
	g := NewWithT(f)
	f.Add(secret(g, token(subject, time.Hour)).Data["value"], true)
	f.Add(secret(g, "a.b.c").Data["value"], false)
	f.Add([]byte("{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}]}"), false)
	f.Add([]byte("{"), true)
	f.Fuzz(func(t *testing.T, content []byte, controlled bool) {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{clusterv1.ClusterNameLabel: "prod"}}, Data: map[string][]byte{"value": content}}
		what, kept, _ := decide(s, controlled, desired(), issued)
		if controlled && what == leave {
			t.Fatal("a Secret of ours was left alone")
		}
		if what == keep || what == rewrite {
			if has, err := parseClaims(kept); err != nil || has.Subject != subject {
				t.Fatalf("kept a token of %q: %v", has.Subject, err)
			}
		}
		_ = checkForeign(s, "prod")
	})
}
