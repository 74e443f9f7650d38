// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

const (
	baseImage = "guest.qcow2"
	// bareHost is the sample of a host that is set up by the operator; the other one is of a host that is set up already.
	bareHost = "rhel-host-02"
)

// applySamples applies the samples with what is different on this machine: addresses, emulation instead of KVM, a small
// image.
func (s *supervisor) applySamples(ctx context.Context) error {
	manifests, err := s.cp.KustomizeBuild(ctx, filepath.Join(s.repository, "operator", "config", "samples"))
	if err != nil {
		return err
	}
	endpoint, err := url.Parse(s.cp.RESTConfig().Host)
	if err != nil {
		return err
	}
	port, err := strconv.ParseInt(endpoint.Port(), 10, 32)
	if err != nil {
		return fmt.Errorf("the API server's address %s has no port: %w", endpoint, err)
	}
	changes := map[string]map[string]any{
		"Cluster": {"spec.controlPlaneEndpoint.host": endpoint.Hostname(), "spec.controlPlaneEndpoint.port": port},
		"LibvirtCluster": {
			"spec.controlPlaneEndpoint.host": endpoint.Hostname(), "spec.controlPlaneEndpoint.port": port,
			"spec.baseImage.pool": "default", "spec.baseImage.volumeName": baseImage,
			"spec.baseImage.source.type": string(infrav1.SourceTypeHTTPS), "spec.baseImage.source.https.url": s.image.url,
			"spec.baseImage.source.https.sha256": s.image.sha256,
			// The server has a certificate of its own.
			"spec.baseImage.source.https.insecureSkipTLSVerify": true,
		},
		"LibvirtHost": {
			"spec.uri": s.host.SessionURI(), "spec.hostKeyFingerprint": s.host.Fingerprint, "spec.virtType": string(infrav1.VirtTypeQEMU),
			"spec.reservedResources.vcpus": int64(0), "spec.reservedResources.memoryMB": int64(0),
			"spec.bootstrap.user": "root",
		},
		"LibvirtMachine": {"spec.hostRef.name": bareHost, "spec.rootDisk.baseImage": baseImage, "spec.rootDisk.size": "1Gi", "spec.rootDisk.ephemeralPoolSize": "256M"},
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096)
	for {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(&u.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if u.GetKind() == "LibvirtHost" && u.GetName() != bareHost {
			continue
		}
		if u.GetKind() == "MachineHealthCheck" {
			// The guest has no kubelet: for want of a Node, it would be power-cycled and deleted while somebody looks at it.
			continue
		}
		if err := adapt(u, changes[u.GetKind()]); err != nil {
			return err
		}
		if u.GetKind() == "LibvirtHost" {
			if err := s.createHostSecret(ctx, u); err != nil {
				return err
			}
		}
		content, err := json.Marshal(u)
		if err != nil {
			return err
		}
		if err := s.cp.Apply(ctx, content); err != nil {
			return err
		}
	}
}

func adapt(u *unstructured.Unstructured, changes map[string]any) error {
	for path, value := range changes {
		var fields []string
		for field := range bytes.SplitSeq([]byte(path), []byte(".")) {
			fields = append(fields, string(field))
		}
		if err := unstructured.SetNestedField(u.Object, value, fields...); err != nil {
			return fmt.Errorf("%s %s: %s: %w", u.GetKind(), u.GetName(), path, err)
		}
	}
	return nil
}

// createHostSecret gives the operator the key of an account that may become root. The key of the service account, the operator makes by itself.
func (s *supervisor) createHostSecret(ctx context.Context, lh *unstructured.Unstructured) error {
	name, _, err := unstructured.NestedString(lh.Object, "spec", "bootstrap", "secretRef", "name")
	if err != nil {
		return err
	}
	key, err := os.ReadFile(s.hosts.PrivateKeyFile())
	if err != nil {
		return err
	}
	return s.cp.Client().Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: lh.GetNamespace(), Name: name},
		Data:       map[string][]byte{infrav1.SSHPrivateKeySecretKey: key},
	})
}
