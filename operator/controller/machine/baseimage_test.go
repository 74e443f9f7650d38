// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/baseimage"
)

// stagerFunc is an ImageStager that counts how often it is asked.
type stagerFunc struct {
	asked int
	stage func() error
}

func (s *stagerFunc) Stage(context.Context, client.Object, *infrav1.LibvirtHost, *infrav1.LibvirtCluster) error {
	s.asked++
	return s.stage()
}

// withImage gives the cluster an image that the host does not have, and the host an account that may bring it.
func withImage(o *objects) {
	o.lcluster.Spec.BaseImage = &infrav1.BaseImage{Pool: "default", VolumeName: "base.qcow2", Source: infrav1.BaseImageSource{
		Type: infrav1.SourceTypeHTTPS, HTTPS: &infrav1.HTTPSBaseImage{URL: "https://mirror.example.com/base.qcow2", SHA256: "aa"},
	}}
	o.lhost.Spec.Bootstrap = &infrav1.HostBootstrap{}
}

func newImageBench(t *testing.T, stager *stagerFunc, change func(*objects)) *bench {
	b := newBench(t, func(o *objects) {
		withImage(o)
		if change != nil {
			change(o)
		}
	})
	b.r.Images = stager
	return b
}

func TestAMachineWaitsForItsClustersImage(t *testing.T) {
	stager := &stagerFunc{stage: func() error { return &baseimage.Error{Reason: infrav1.BaseImageStagingReason, Message: "34 %"} }}
	b := newImageBench(t, stager, nil)
	images := b.connector.host.pools["default"].volumes
	image := images["base.qcow2"]
	delete(images, "base.qcow2")

	lm, result := b.reconcile()
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.BaseImageStagingReason))
	b.Expect(conditions.GetReason(lm, infrav1.BaseImageStagedCondition)).To(Equal(infrav1.BaseImageStagingReason))
	b.Expect(conditions.GetMessage(lm, infrav1.BaseImageStagedCondition)).To(Equal("34 %"))
	b.Expect(result.RequeueAfter).To(Equal(stagingPoll))
	b.Expect(<-b.recorder.Events).To(ContainSubstring("Normal BaseImageStaging"))
	b.Expect(b.connector.host.steps).To(BeEmpty())

	stager.stage = func() error { images["base.qcow2"] = image; return nil }
	lm, _ = b.reconcile()
	b.Expect(conditions.IsTrue(lm, infrav1.BaseImageStagedCondition)).To(BeTrue())
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.RunningReason))
	asked := stager.asked
	b.reconcile()
	b.Expect(stager.asked).To(Equal(asked), "a machine that has run needs no image any more")
}

func TestAnImageThatIsThereIsNotAskedFor(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*objects)
		asked  int
	}{
		{"pinned and recorded", func(o *objects) {
			o.lhost.Status.BaseImages = []infrav1.HostBaseImage{{Pool: "default", VolumeName: "base.qcow2", SHA256: "aa", StagedAt: new(metav1.Now())}}
		}, 0},
		{"not pinned", func(o *objects) { o.lcluster.Spec.BaseImage.Source.HTTPS.SHA256 = "" }, 0},
		{"pinned, on a host that the operator may not look at as root", func(o *objects) { o.lhost.Spec.Bootstrap = nil }, 0},
		{"another image than the machine's", func(o *objects) { o.lcluster.Spec.BaseImage.VolumeName = "other.qcow2" }, 0},
		{"another pool than the machine's", func(o *objects) { o.lcluster.Spec.BaseImage.Pool = "other" }, 0},
		{"pinned, and of unknown origin", func(*objects) {}, 1},
		{"pinned, and recorded with another digest", func(o *objects) {
			o.lhost.Status.BaseImages = []infrav1.HostBaseImage{{Pool: "default", VolumeName: "base.qcow2", SHA256: "bb", StagedAt: new(metav1.Now())}}
		}, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			stager := &stagerFunc{stage: func() error { return nil }}
			b := newImageBench(t, stager, row.change)
			lm, _ := b.reconcile()
			b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.RunningReason))
			b.Expect(conditions.Has(lm, infrav1.BaseImageStagedCondition)).To(BeFalse(), "nobody had to wait")
			b.Expect(stager.asked).To(Equal(row.asked))
		})
	}
}

// imageFailures are what can go wrong with the image; each is mended by a stager that succeeds.
var imageFailures = []struct {
	err  error
	want string
}{
	{&baseimage.Error{Reason: infrav1.BaseImageFetchFailedReason, Message: "404"}, infrav1.BaseImageFetchFailedReason},
	{&baseimage.Error{Reason: infrav1.BaseImageStagingFailedReason, Message: "task failed"}, infrav1.BaseImageStagingFailedReason},
	{&baseimage.Error{Reason: infrav1.HostNotManagedReason, Message: "no spec.bootstrap"}, infrav1.HostNotManagedReason},
	{&baseimage.Error{Reason: infrav1.RunnerUnavailableReason, Message: "no socket"}, infrav1.RunnerUnavailableReason},
	{errors.New("words"), infrav1.BaseImageStagingFailedReason},
}

func TestAFailureToStageIsInTheConditionsAndRecoversWhenItIsMended(t *testing.T) {
	for _, row := range imageFailures {
		t.Run(row.want, func(t *testing.T) {
			stager := &stagerFunc{stage: func() error { return row.err }}
			b := newImageBench(t, stager, nil)
			lm, result := b.reconcile()
			for _, c := range []string{infrav1.MachineReadyCondition, infrav1.BaseImageStagedCondition} {
				b.Expect(conditions.GetReason(lm, c)).To(Equal(row.want))
				b.Expect(conditions.GetMessage(lm, c)).To(Equal(row.err.Error()))
			}
			b.Expect(result.RequeueAfter).To(BeNumerically(">", 0))
			b.Expect(<-b.recorder.Events).To(ContainSubstring("Warning " + row.want))
			stager.stage = func() error { return nil }
			lm, _ = b.reconcile()
			b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.RunningReason))
		})
	}
}
