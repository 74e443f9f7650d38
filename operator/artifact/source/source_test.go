// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/artifact/fault"
	"github.com/caplv/caplv/operator/artifact/fetch"
	"github.com/caplv/caplv/operator/artifact/source"
)

func secret(pairs ...string) map[string][]byte {
	s := map[string][]byte{}
	for i := 0; i < len(pairs); i += 2 {
		s[pairs[i]] = []byte(pairs[i+1])
	}
	return s
}

func docker(config string) map[string][]byte { return secret(corev1.DockerConfigJsonKey, config) }

func httpsImage() infrav1.BaseImageSource {
	return infrav1.BaseImageSource{Type: infrav1.SourceTypeHTTPS, HTTPS: &infrav1.HTTPSBaseImage{URL: "https://example.com/f", SHA256: "ab"}}
}

func ociImage(reference infrav1.OCIReference) infrav1.BaseImageSource {
	return infrav1.BaseImageSource{Type: infrav1.SourceTypeOCI, OCI: &infrav1.OCIBaseImage{
		OCIAccess: infrav1.OCIAccess{Reference: reference, PlainHTTP: true, InsecureSkipTLSVerify: true}, BlobTitle: "title",
	}}
}

func s3Image() infrav1.BaseImageSource {
	return infrav1.BaseImageSource{Type: infrav1.SourceTypeS3, S3: &infrav1.S3BaseImage{
		S3Access: infrav1.S3Access{Endpoint: "s3.example.com", Region: "r", Bucket: "b", UsePathStyle: true, Insecure: true}, Key: "k",
	}}
}

func TestTheShapesOfSecrets(t *testing.T) {
	const registry = infrav1.OCIReference("registry.example.com:5000/a/b:v1")
	for _, row := range []struct {
		name   string
		source infrav1.BaseImageSource
		secret map[string][]byte
		want   fetch.Credentials
	}{
		{"none for HTTPS", httpsImage(), nil, fetch.Credentials{}},
		{"basic authentication", httpsImage(), secret("username", "u", "password", "p\n"), fetch.Credentials{Username: "u", Password: "p"}},
		{"none for OCI", ociImage(registry), nil, fetch.Credentials{}},
		{"a user of the registry", ociImage(registry), secret("username", "u", "password", "p"), fetch.Credentials{Username: "u", Password: "p"}},
		{
			"docker's configuration, by the exact key among others", ociImage(registry),
			docker(`{"auths":{"registry.example.com":{"username":"x","password":"y"},"registry.example.com:5000":{"auth":"dTpwOnE="}}}`),
			fetch.Credentials{Username: "u", Password: "p:q"},
		},
		{
			"docker's configuration, by a key that is a URL", ociImage(registry),
			docker(`{"auths":{"https://registry.example.com:5000/v1/":{"username":"u","password":"p"}}}`), fetch.Credentials{Username: "u", Password: "p"},
		},
		{
			"docker's own registry", ociImage("docker.io/a/b:v1"),
			docker(`{"auths":{"https://index.docker.io/v1/":{"username":"u","password":"p"}}}`), fetch.Credentials{Username: "u", Password: "p"},
		},
		{
			"an identity token", ociImage(registry),
			docker(`{"auths":{"registry.example.com:5000":{"auth":"MDAwMDo=","identitytoken":"t"}}}`), fetch.Credentials{IdentityToken: "t"},
		},
		{"none for S3", s3Image(), nil, fetch.Credentials{}},
		{
			"an access key", s3Image(), secret("accessKeyID", "a", "secretAccessKey", "s", "sessionToken", "t"),
			fetch.Credentials{AccessKeyID: "a", SecretAccessKey: "s", SessionToken: "t"},
		},
		{
			"an access key as AWS spells it", s3Image(),
			secret("AWS_ACCESS_KEY_ID", "a", "AWS_SECRET_ACCESS_KEY", "s", "AWS_SESSION_TOKEN", "t"),
			fetch.Credentials{AccessKeyID: "a", SecretAccessKey: "s", SessionToken: "t"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := source.BaseImage(row.source, row.secret)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got.Credentials).To(Equal(row.want))
		})
	}
}

func TestSecretsThatLackSomethingAreRefusedAndTheFieldIsNamed(t *testing.T) {
	const registry = infrav1.OCIReference("registry.example.com:5000/a/b:v1")
	for _, row := range []struct {
		name    string
		source  infrav1.BaseImageSource
		secret  map[string][]byte
		message string
	}{
		{"no password", httpsImage(), secret("username", "u"), "spec.baseImage.source.https.credentialsSecretRef: the Secret needs the keys username and password"},
		{"an empty Secret", ociImage(registry), secret(), "the Secret needs the key .dockerconfigjson, or the keys username and password"},
		{"another registry", ociImage(registry), docker(`{"auths":{"quay.io":{"auth":"dTpw"}}}`), "no credentials for the registry registry.example.com:5000, only for: quay.io"},
		{"the registry without its port", ociImage(registry), docker(`{"auths":{"registry.example.com":{"auth":"dTpw"}}}`), "only for: registry.example.com"},
		{"no JSON", ociImage(registry), docker("{"), "is not JSON"},
		{"no base64", ociImage(registry), docker(`{"auths":{"registry.example.com:5000":{"auth":"?"}}}`), "in base64"},
		{"an empty entry", ociImage(registry), docker(`{"auths":{"registry.example.com:5000":{}}}`), "is empty"},
		{"no secret key", s3Image(), secret("accessKeyID", "a"), "spec.baseImage.source.s3.credentialsSecretRef: the Secret needs the keys accessKeyID and secretAccessKey"},
	} {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := source.BaseImage(row.source, row.secret)
			g.Expect(fault.ReasonOf(err)).To(Equal(fault.InvalidCredentials))
			g.Expect(err).To(MatchError(ContainSubstring(row.message)))
		})
	}
}

func TestEachFieldOfTheAPIArrives(t *testing.T) {
	g := NewWithT(t)
	got, err := source.BaseImage(httpsImage(), nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got.Location).To(Equal(fetch.HTTPS{URL: "https://example.com/f"}))
	g.Expect(got.SHA256).To(Equal("ab"))
	g.Expect(got.Fields).To(HaveKeyWithValue(fault.Digest, "spec.baseImage.source.https.sha256"))
	got, err = source.BaseImage(ociImage("r.example.com/a:v1"), nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got.Location).To(Equal(fetch.OCI{Reference: "r.example.com/a:v1", Title: "title", PlainHTTP: true}))
	g.Expect(got.InsecureSkipTLSVerify).To(BeTrue())
	got, err = source.BaseImage(s3Image(), nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(got.Location).To(Equal(fetch.S3{Endpoint: "s3.example.com", Region: "r", Bucket: "b", Key: "k", PathStyle: true, PlainHTTP: true}))
	_, err = source.BaseImage(infrav1.BaseImageSource{Type: infrav1.SourceTypeS3}, nil)
	g.Expect(fault.ReasonOf(err)).To(Equal(fault.InvalidSource))
}

func TestKernelAndInitramfsAreTwoSourcesOfOnePlace(t *testing.T) {
	g := NewWithT(t)
	for _, row := range []struct {
		source            infrav1.BootArtifactsSource
		kernel, initramfs fetch.Location
		field             string
	}{
		{
			infrav1.BootArtifactsSource{Type: infrav1.SourceTypeHTTPS, HTTPS: &infrav1.HTTPSBootArtifacts{KernelURL: "https://e.com/k", InitramfsURL: "https://e.com/i"}},
			fetch.HTTPS{URL: "https://e.com/k"}, fetch.HTTPS{URL: "https://e.com/i"}, "spec.bootArtifacts.source.https.initramfsURL",
		},
		{
			infrav1.BootArtifactsSource{Type: infrav1.SourceTypeOCI, OCI: &infrav1.OCIBootArtifacts{OCIAccess: infrav1.OCIAccess{Reference: "r.com/a:v1"}}},
			fetch.OCI{Reference: "r.com/a:v1", Title: "vmlinuz"}, fetch.OCI{Reference: "r.com/a:v1", Title: "initramfs.img"},
			"spec.bootArtifacts.source.oci.initramfsLayerTitle",
		},
		{
			infrav1.BootArtifactsSource{Type: infrav1.SourceTypeS3, S3: &infrav1.S3BootArtifacts{
				S3Access: infrav1.S3Access{Endpoint: "e", Bucket: "b"}, KernelKey: "k", InitramfsKey: "i",
			}},
			fetch.S3{Endpoint: "e", Bucket: "b", Key: "k"}, fetch.S3{Endpoint: "e", Bucket: "b", Key: "i"}, "spec.bootArtifacts.source.s3.initramfsKey",
		},
	} {
		kernel, initramfs, err := source.BootArtifacts(row.source, nil)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(kernel.Location).To(Equal(row.kernel))
		g.Expect(initramfs.Location).To(Equal(row.initramfs))
		g.Expect(initramfs.Fields).To(HaveKeyWithValue(fault.Location, row.field))
		g.Expect(initramfs.MaxSize).To(BeEquivalentTo(source.MaxBootArtifact))
		g.Expect(source.CredentialsOfBootArtifacts(row.source)).To(BeNil())
	}
}

func FuzzDockerConfig(f *testing.F) {
	f.Add([]byte(`{"auths":{"r.example.com":{"auth":"dTpw"}}}`))
	f.Add([]byte(`{"auths":{"https://r.example.com/v1/":{"username":"u"}}}`))
	f.Fuzz(func(t *testing.T, config []byte) {
		got, err := source.BaseImage(ociImage("r.example.com/a:v1"), map[string][]byte{corev1.DockerConfigJsonKey: config})
		if err == nil && got.Credentials == (fetch.Credentials{}) {
			t.Error("credentials were given, and none were found, without an error")
		}
	})
}
