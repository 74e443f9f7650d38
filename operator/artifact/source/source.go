// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package source translates the API's descriptions of artifacts, with the content of their Secrets, into sources to fetch from.
package source

import (
	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/artifact/fault"
	"github.com/caplv/caplv/operator/artifact/fetch"
)

// Where the sources are in a LibvirtCluster.
const (
	baseImagePath     = "spec.baseImage.source"
	bootArtifactsPath = "spec.bootArtifacts.source"
)

// MaxBootArtifact is the most bytes that a kernel or an initramfs may have, decompressed.
const MaxBootArtifact = 2 << 30

// BaseImage is the source of a cluster's base image. SECRET is the data of the Secret that CredentialsOfBaseImage names, or nil.
func BaseImage(s infrav1.BaseImageSource, secret map[string][]byte) (fetch.Source, error) {
	switch {
	case s.Type == infrav1.SourceTypeHTTPS && s.HTTPS != nil:
		return https(s.HTTPS.HTTPSAccess, file{string(s.HTTPS.URL), s.HTTPS.SHA256, baseImagePath + ".https", "url", "sha256"}, secret)
	case s.Type == infrav1.SourceTypeOCI && s.OCI != nil:
		return oci(s.OCI.OCIAccess, file{s.OCI.BlobTitle, s.OCI.SHA256, baseImagePath + ".oci", "reference", "sha256"}, secret)
	case s.Type == infrav1.SourceTypeS3 && s.S3 != nil:
		return s3(s.S3.S3Access, file{s.S3.Key, s.S3.SHA256, baseImagePath + ".s3", "key", "sha256"}, secret)
	}
	return fetch.Source{}, missing(baseImagePath, s.Type)
}

// BootArtifacts are the sources of a cluster's kernel and initramfs. SECRET is the data of the Secret that CredentialsOfBootArtifacts names, or nil.
func BootArtifacts(s infrav1.BootArtifactsSource, secret map[string][]byte) (kernel, initramfs fetch.Source, err error) {
	both := func(translate func(file) (fetch.Source, error), kernelFile, initramfsFile file) (fetch.Source, fetch.Source, error) {
		kernel, err := translate(kernelFile)
		if err != nil {
			return fetch.Source{}, fetch.Source{}, err
		}
		initramfs, err := translate(initramfsFile)
		kernel.MaxSize, initramfs.MaxSize = MaxBootArtifact, MaxBootArtifact
		return kernel, initramfs, err
	}
	const kernelDigest, initramfsDigest = "kernelSHA256", "initramfsSHA256"
	switch {
	case s.Type == infrav1.SourceTypeHTTPS && s.HTTPS != nil:
		const path = bootArtifactsPath + ".https"
		return both(func(f file) (fetch.Source, error) { return https(s.HTTPS.HTTPSAccess, f, secret) },
			file{string(s.HTTPS.KernelURL), s.HTTPS.KernelSHA256, path, "kernelURL", kernelDigest},
			file{string(s.HTTPS.InitramfsURL), s.HTTPS.InitramfsSHA256, path, "initramfsURL", initramfsDigest})
	case s.Type == infrav1.SourceTypeOCI && s.OCI != nil:
		const path = bootArtifactsPath + ".oci"
		return both(func(f file) (fetch.Source, error) { return oci(s.OCI.OCIAccess, f, secret) },
			file{orDefault(s.OCI.KernelLayerTitle, "vmlinuz"), s.OCI.KernelSHA256, path, "kernelLayerTitle", kernelDigest},
			file{orDefault(s.OCI.InitramfsLayerTitle, "initramfs.img"), s.OCI.InitramfsSHA256, path, "initramfsLayerTitle", initramfsDigest})
	case s.Type == infrav1.SourceTypeS3 && s.S3 != nil:
		const path = bootArtifactsPath + ".s3"
		return both(func(f file) (fetch.Source, error) { return s3(s.S3.S3Access, f, secret) },
			file{s.S3.KernelKey, s.S3.KernelSHA256, path, "kernelKey", kernelDigest},
			file{s.S3.InitramfsKey, s.S3.InitramfsSHA256, path, "initramfsKey", initramfsDigest})
	}
	return fetch.Source{}, fetch.Source{}, missing(bootArtifactsPath, s.Type)
}

// CredentialsOfBaseImage is the reference to the Secret, or nil.
func CredentialsOfBaseImage(s infrav1.BaseImageSource) *infrav1.CredentialsSecretReference {
	switch {
	case s.HTTPS != nil:
		return s.HTTPS.CredentialsSecretRef
	case s.OCI != nil:
		return s.OCI.CredentialsSecretRef
	case s.S3 != nil:
		return s.S3.CredentialsSecretRef
	}
	return nil
}

// CredentialsOfBootArtifacts is the reference to the Secret, or nil.
func CredentialsOfBootArtifacts(s infrav1.BootArtifactsSource) *infrav1.CredentialsSecretReference {
	switch {
	case s.HTTPS != nil:
		return s.HTTPS.CredentialsSecretRef
	case s.OCI != nil:
		return s.OCI.CredentialsSecretRef
	case s.S3 != nil:
		return s.S3.CredentialsSecretRef
	}
	return nil
}

// file is one file of a source: its URL, title or key, and the names of the fields that errors concern.
type file struct {
	name        string
	sha256      infrav1.SHA256
	path        string
	nameField   string
	digestField string
}

func (f file) fields() map[fault.Part]string {
	return map[fault.Part]string{
		fault.Location: f.path + "." + f.nameField, fault.Digest: f.path + "." + f.digestField,
		fault.Credentials: f.path + ".credentialsSecretRef", fault.TLS: f.path + ".insecureSkipTLSVerify",
	}
}

func https(a infrav1.HTTPSAccess, f file, secret map[string][]byte) (fetch.Source, error) {
	credentials, err := passwordOf(secret)
	return fetch.Source{
		Location: fetch.HTTPS{URL: f.name}, Credentials: credentials, SHA256: string(f.sha256),
		InsecureSkipTLSVerify: a.InsecureSkipTLSVerify, Fields: f.fields(),
	}, named(err, f)
}

func oci(a infrav1.OCIAccess, f file, secret map[string][]byte) (fetch.Source, error) {
	credentials, err := registryCredentials(secret, string(a.Reference))
	return fetch.Source{
		Location: fetch.OCI{Reference: string(a.Reference), Title: f.name, PlainHTTP: a.PlainHTTP}, Credentials: credentials,
		SHA256: string(f.sha256), InsecureSkipTLSVerify: a.InsecureSkipTLSVerify, Fields: f.fields(),
	}, named(err, f)
}

func s3(a infrav1.S3Access, f file, secret map[string][]byte) (fetch.Source, error) {
	credentials, err := accessKeyOf(secret)
	return fetch.Source{
		Location: fetch.S3{
			Endpoint: a.Endpoint, Region: a.Region, Bucket: a.Bucket, Key: f.name, PathStyle: a.UsePathStyle, PlainHTTP: a.Insecure,
		},
		Credentials: credentials, SHA256: string(f.sha256), InsecureSkipTLSVerify: a.InsecureSkipTLSVerify, Fields: f.fields(),
	}, named(err, f)
}

// named has an error about credentials name their field.
func named(err *fault.Error, f file) error {
	if err == nil {
		return nil
	}
	err.Field = f.fields()[err.Part]
	return err
}

func missing(path string, kind infrav1.SourceType) error {
	err := fault.New(fault.InvalidSource, fault.Location, "the member that the type %q names is not set", kind)
	err.Field = path
	return err
}

func orDefault(value, fallback string) string {
	if value == "" {
		return fallback
	}
	return value
}
