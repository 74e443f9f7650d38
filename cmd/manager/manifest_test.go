// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// shippedPod is the Pod of the shipped Deployment.
func shippedPod(t *testing.T) corev1.PodSpec {
	t.Helper()
	g := NewWithT(t)
	content, err := os.ReadFile("../../operator/config/manager/manager.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		deployment := &appsv1.Deployment{}
		if strings.Contains(document, "kind: Deployment") {
			g.Expect(yaml.UnmarshalStrict([]byte(document), deployment)).To(Succeed())
			return deployment.Spec.Template.Spec
		}
	}
	t.Fatal("manager.yaml has no Deployment")
	return corev1.PodSpec{}
}

func TestTheShippedDeploymentHasFlagsOfTheManager(t *testing.T) {
	g := NewWithT(t)
	o := &options{}
	fs := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	o.addFlags(fs)
	g.Expect(fs.Parse(shippedPod(t).Containers[0].Args)).To(Succeed())
}

// TestManagerAndSidecarMeet compares what the two containers are told about what they share.
func TestManagerAndSidecarMeet(t *testing.T) {
	g := NewWithT(t)
	pod := shippedPod(t)
	manager, sidecar := pod.Containers[0], pod.Containers[1]
	g.Expect(sidecar.Name).To(Equal("ansible-runner"))
	socket := value(g, manager.Args, "--ansible-runner-socket")
	g.Expect(value(g, sidecar.Args, "--socket")).To(Equal(socket))
	images := value(g, manager.Args, "--base-image-cache-dir")
	for _, shared := range []string{socket[:strings.LastIndex(socket, "/")], images} {
		g.Expect(mountAt(g, sidecar, shared).Name).To(Equal(mountAt(g, manager, shared).Name), "both see %s", shared)
	}
	g.Expect(mountAt(g, sidecar, images).ReadOnly).To(BeTrue())
	for _, volume := range pod.Volumes {
		if volume.Name == mountAt(g, manager, images).Name {
			size := resource.MustParse(value(g, manager.Args, "--base-image-cache-size"))
			g.Expect(size.Cmp(*volume.EmptyDir.SizeLimit)).To(Equal(-1), "a volume that is too full has the Pod evicted")
		}
	}
	keys := mountAt(g, sidecar, value(g, sidecar.Args, "--work-dir"))
	for _, volume := range pod.Volumes {
		if volume.Name == keys.Name || volume.Name == mountAt(g, sidecar, socket[:strings.LastIndex(socket, "/")]).Name {
			g.Expect(volume.EmptyDir).To(HaveField("Medium", corev1.StorageMediumMemory), "keys never get to a disk")
		}
	}
	for _, container := range pod.Containers {
		g.Expect(container.SecurityContext).To(HaveField("ReadOnlyRootFilesystem", Equal(new(true))), container.Name)
		g.Expect(container.SecurityContext).To(HaveField("AllowPrivilegeEscalation", Equal(new(false))), container.Name)
		g.Expect(container.Resources.Requests).NotTo(BeEmpty(), container.Name)
	}
	g.Expect(pod.SecurityContext).To(HaveField("RunAsNonRoot", Equal(new(true))))
}

// value is that of a flag.
func value(g Gomega, args []string, flag string) string {
	for _, arg := range args {
		if name, value, ok := strings.Cut(arg, "="); ok && name == flag {
			return value
		}
	}
	g.Expect(args).To(ContainElement(HavePrefix(flag + "=")))
	return ""
}

func mountAt(g Gomega, container corev1.Container, path string) corev1.VolumeMount {
	for _, mount := range container.VolumeMounts {
		if mount.MountPath == path {
			return mount
		}
	}
	g.Expect(container.VolumeMounts).To(ContainElement(HaveField("MountPath", path)), container.Name)
	return corev1.VolumeMount{}
}
