// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// fieldOwner is the field manager of everything that Apply writes.
const fieldOwner = client.FieldOwner("caplv-bench")

// Apply applies the objects of a multi-document YAML in their order, server-side, and takes over fields that somebody
// else owns. After a CustomResourceDefinition it waits until its kind is served, so that its objects may follow. It
// stops at the first object that is refused.
func (cp *ControlPlane) Apply(ctx context.Context, manifests []byte) error {
	objects, err := decodeYAML(manifests)
	if err != nil {
		return err
	}
	for _, u := range objects {
		if err := cp.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner, client.ForceOwnership); err != nil {
			return fmt.Errorf("applying %s %s: %w", u.GetKind(), client.ObjectKeyFromObject(u), err)
		}
		if u.GetKind() != "CustomResourceDefinition" {
			continue
		}
		if err := cp.waitForCRD(u); err != nil {
			return fmt.Errorf("waiting for the kind of CustomResourceDefinition %s: %w", u.GetName(), err)
		}
	}
	return nil
}

func (cp *ControlPlane) waitForCRD(u *unstructured.Unstructured) error {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, crd); err != nil {
		return err
	}
	options := envtest.CRDInstallOptions{MaxTime: apiServerTimeout}
	return envtest.WaitForCRDs(cp.config, []*apiextensionsv1.CustomResourceDefinition{crd}, options)
}

// KustomizeBuild returns the multi-document YAML that kustomize builds from a directory.
func (cp *ControlPlane) KustomizeBuild(ctx context.Context, dir string) ([]byte, error) {
	kustomize, err := toolPath(ctx, "kustomize")
	if err != nil {
		return nil, err
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, kustomize, "build", dir)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("kustomize build %s: %w: %s", dir, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

// Except returns a multi-document YAML without the objects of the given kinds.
func Except(manifests []byte, kinds ...string) ([]byte, error) {
	objects, err := decodeYAML(manifests)
	if err != nil {
		return nil, err
	}
	var kept bytes.Buffer
	for _, u := range objects {
		if slices.Contains(kinds, u.GetKind()) {
			continue
		}
		document, err := u.MarshalJSON()
		if err != nil {
			return nil, err
		}
		kept.Write(document)
		kept.WriteString("\n---\n")
	}
	return kept.Bytes(), nil
}

// decodeYAML splits a multi-document YAML into objects; empty documents are left out.
func decodeYAML(manifests []byte) ([]*unstructured.Unstructured, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096)
	var objects []*unstructured.Unstructured
	for {
		u := &unstructured.Unstructured{}
		err := decoder.Decode(&u.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", len(objects)+1, err)
		}
		if len(u.Object) > 0 {
			objects = append(objects, u)
		}
	}
}
