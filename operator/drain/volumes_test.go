// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func attachment(node, volume string, attached bool) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: node + "-" + volume},
		Spec:       storagev1.VolumeAttachmentSpec{NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
		Status:     storagev1.VolumeAttachmentStatus{Attached: attached},
	}
}

func scheme(g *WithT) *runtime.Scheme {
	s := runtime.NewScheme()
	g.Expect(corev1.AddToScheme(s)).To(Succeed())
	g.Expect(storagev1.AddToScheme(s)).To(Succeed())
	return s
}

func TestAttachedVolumesAreCountedOnceAndNamed(t *testing.T) {
	for _, row := range []struct {
		name   string
		inNode int
		others []client.Object
		gone   bool
		want   string
	}{
		{"none", 0, nil, false, ""},
		{"those of other Nodes and those that are detached do not count", 0, []client.Object{attachment("other", "a", true), attachment("n", "b", false)}, false, ""},
		{"the Node and an attachment speak of the same one", 1, []client.Object{attachment("n", "a", true)}, false, "1 attached: PersistentVolume a"},
		{"only the Node knows it", 1, nil, false, "1 attached: v0"},
		{"the first three are named", 5, []client.Object{attachment("n", "a", true)}, false, "5 attached: PersistentVolume a, v0, v1 and 2 more"},
		{"a kubelet that is gone detaches none", 5, []client.Object{attachment("n", "a", true)}, true, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			for i := range row.inNode {
				node.Status.VolumesAttached = append(node.Status.VolumesAttached, corev1.AttachedVolume{Name: corev1.UniqueVolumeName(fmt.Sprintf("v%d", i))})
			}
			if row.gone {
				node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
			}
			d := &Drainer{Client: fake.NewClientBuilder().WithScheme(scheme(g)).WithObjects(row.others...).Build()}
			g.Expect(d.Volumes(t.Context(), node)).To(Equal(row.want))
		})
	}
}

func TestVolumesThatCannotBeListedAreAnError(t *testing.T) {
	g := NewWithT(t)
	d := &Drainer{Client: fake.NewClientBuilder().WithScheme(scheme(g)).WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("no answer")
		},
	}).Build()}
	_, err := d.Volumes(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	g.Expect(err).To(MatchError("listing VolumeAttachments: no answer"))
}
