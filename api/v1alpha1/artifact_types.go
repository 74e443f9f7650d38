// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// SourceType is how an artifact is fetched.
// +kubebuilder:validation:Enum=HTTPS;OCI;S3
type SourceType string

const (
	// SourceTypeHTTPS fetches files from an HTTPS server.
	SourceTypeHTTPS SourceType = "HTTPS"
	// SourceTypeOCI fetches layers of an artifact from an OCI registry.
	SourceTypeOCI SourceType = "OCI"
	// SourceTypeS3 fetches objects from an S3-compatible store.
	SourceTypeS3 SourceType = "S3"
)

// CredentialsSecretReference names a Secret with credentials for an artifact's source.
type CredentialsSecretReference struct {
	// name is the name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// namespace is the Secret's namespace. Only the namespace of the LibvirtCluster is accepted; it is the default.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// SHA256 is the hexadecimal SHA-256 digest of a decompressed artifact.
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-f]{64}$')",message="a sha256 digest is 64 lower-case hexadecimal digits; it describes the decompressed file"
type SHA256 string

// HTTPSURL is the location of a file on an HTTPS server.
// +kubebuilder:validation:MaxLength=2048
// +kubebuilder:validation:XValidation:rule="self.matches('^https://[^/]+/.+')",message="the URL must begin with https:// and name a file"
type HTTPSURL string

// OCIReference names an artifact in a registry: REGISTRY/REPOSITORY:TAG or …@sha256:DIGEST.
// +kubebuilder:validation:MaxLength=512
// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9.-]+(:[0-9]+)?/[a-z0-9._/-]+(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?(@sha256:[0-9a-f]{64})?$')",message="reference must read REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@sha256:DIGEST"
type OCIReference string

// BootArtifacts are the kernel and initramfs that machines boot directly, those with bootstrapFormat cloud-init excepted.
type BootArtifacts struct {
	// hostPath is the directory on each host under which the files are cached by digest: one below /var/lib/caplv, or one in which root has put an
	// empty file .caplv-boot.
	// +optional
	// +kubebuilder:default=/var/lib/caplv/boot
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="hostPath must be an absolute path on the host"
	HostPath string `json:"hostPath,omitempty"`

	// kernelArgs is the kernel's command line. Line breaks count as spaces. The guest's Ignition finds its config with
	// ignition.config.url=oem:/dev/disk/by-id/virtio-ignition or what else its system has for that.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	KernelArgs string `json:"kernelArgs,omitempty"`

	// source says where the files come from.
	// +required
	Source BootArtifactsSource `json:"source"`
}

// BootArtifactsSource is where kernel and initramfs come from. Exactly the member that type names is set.
// +kubebuilder:validation:XValidation:rule="self.type == 'HTTPS' ? has(self.https) && !has(self.oci) && !has(self.s3) : true",message="type HTTPS needs the member https and no other source"
// +kubebuilder:validation:XValidation:rule="self.type == 'OCI' ? has(self.oci) && !has(self.https) && !has(self.s3) : true",message="type OCI needs the member oci and no other source"
// +kubebuilder:validation:XValidation:rule="self.type == 'S3' ? has(self.s3) && !has(self.https) && !has(self.oci) : true",message="type S3 needs the member s3 and no other source"
type BootArtifactsSource struct {
	// type names the member that is set.
	// +required
	Type SourceType `json:"type"`

	// https fetches both files from HTTPS servers.
	// +optional
	HTTPS *HTTPSBootArtifacts `json:"https,omitempty"`

	// oci fetches both files as layers of one artifact.
	// +optional
	OCI *OCIBootArtifacts `json:"oci,omitempty"`

	// s3 fetches both files as objects of one bucket.
	// +optional
	S3 *S3BootArtifacts `json:"s3,omitempty"`
}

// BootArtifactDigests are optional digests of the decompressed files.
type BootArtifactDigests struct {
	// kernelSHA256 is the digest of the decompressed kernel.
	// +optional
	KernelSHA256 SHA256 `json:"kernelSHA256,omitempty"`

	// initramfsSHA256 is the digest of the decompressed initramfs.
	// +optional
	InitramfsSHA256 SHA256 `json:"initramfsSHA256,omitempty"`
}

// HTTPSAccess is how an HTTPS server is talked to.
type HTTPSAccess struct {
	// credentialsSecretRef names a Secret with the keys username and password for basic authentication.
	// +optional
	CredentialsSecretRef *CredentialsSecretReference `json:"credentialsSecretRef,omitempty"`

	// insecureSkipTLSVerify disables verification of the server's certificate. Prefer SSL_CERT_FILE.
	// +optional
	InsecureSkipTLSVerify bool `json:"insecureSkipTLSVerify,omitempty"`
}

// OCIAccess is how an OCI registry is talked to.
type OCIAccess struct {
	// reference names the artifact.
	// +required
	// +kubebuilder:validation:MinLength=1
	Reference OCIReference `json:"reference"`

	// credentialsSecretRef names a Secret of type kubernetes.io/dockerconfigjson, or one with username and password.
	// +optional
	CredentialsSecretRef *CredentialsSecretReference `json:"credentialsSecretRef,omitempty"`

	// plainHTTP talks HTTP without TLS, for mirrors inside the cluster.
	// +optional
	PlainHTTP bool `json:"plainHTTP,omitempty"`

	// insecureSkipTLSVerify disables verification of the registry's certificate.
	// +optional
	InsecureSkipTLSVerify bool `json:"insecureSkipTLSVerify,omitempty"`
}

// S3Access is how an S3-compatible store is talked to.
type S3Access struct {
	// endpoint is HOST[:PORT] of the store.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9.-]+(:[0-9]+)?$')",message="endpoint must be HOST[:PORT], without a scheme"
	Endpoint string `json:"endpoint"`

	// region is needed by AWS and optional elsewhere.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Region string `json:"region,omitempty"`

	// bucket is the name of the bucket.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Bucket string `json:"bucket"`

	// credentialsSecretRef names a Secret with accessKeyID, secretAccessKey and optionally sessionToken, or their
	// AWS_… spellings. Without it, objects are read anonymously.
	// +optional
	CredentialsSecretRef *CredentialsSecretReference `json:"credentialsSecretRef,omitempty"`

	// usePathStyle puts the bucket into the path; MinIO and Ceph need it.
	// +optional
	UsePathStyle bool `json:"usePathStyle,omitempty"`

	// insecure talks HTTP without TLS.
	// +optional
	Insecure bool `json:"insecure,omitempty"`

	// insecureSkipTLSVerify disables verification of the store's certificate.
	// +optional
	InsecureSkipTLSVerify bool `json:"insecureSkipTLSVerify,omitempty"`
}

// HTTPSBootArtifacts are boot artifacts on HTTPS servers.
type HTTPSBootArtifacts struct {
	HTTPSAccess         `json:",inline"`
	BootArtifactDigests `json:",inline"`

	// kernelURL is where the kernel is.
	// +required
	// +kubebuilder:validation:MinLength=1
	KernelURL HTTPSURL `json:"kernelURL"`

	// initramfsURL is where the initramfs is.
	// +required
	// +kubebuilder:validation:MinLength=1
	InitramfsURL HTTPSURL `json:"initramfsURL"`
}

// OCIBootArtifacts are boot artifacts in one OCI artifact.
type OCIBootArtifacts struct {
	OCIAccess           `json:",inline"`
	BootArtifactDigests `json:",inline"`

	// kernelLayerTitle is the org.opencontainers.image.title of the kernel's layer.
	// +optional
	// +kubebuilder:default=vmlinuz
	// +kubebuilder:validation:MaxLength=255
	KernelLayerTitle string `json:"kernelLayerTitle,omitempty"`

	// initramfsLayerTitle is the org.opencontainers.image.title of the initramfs's layer.
	// +optional
	// +kubebuilder:default=initramfs.img
	// +kubebuilder:validation:MaxLength=255
	InitramfsLayerTitle string `json:"initramfsLayerTitle,omitempty"`
}

// S3BootArtifacts are boot artifacts in one bucket.
type S3BootArtifacts struct {
	S3Access            `json:",inline"`
	BootArtifactDigests `json:",inline"`

	// kernelKey is the kernel's object key.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	KernelKey string `json:"kernelKey"`

	// initramfsKey is the initramfs's object key.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	InitramfsKey string `json:"initramfsKey"`
}

// BaseImage is the root disk image that the controller stages on every host.
// +kubebuilder:validation:XValidation:rule="!has(self.delivery) || self.delivery != 'Pull' || (has(self.source.https) && has(self.source.https.sha256))",message="delivery Pull needs source.https with a sha256, since nobody but the host sees the image; set them, or use delivery Push"
type BaseImage struct {
	// pool is the storage pool on each host that receives the image.
	// +required
	Pool ResourceName `json:"pool"`

	// volumeName is the name of the volume; machines refer to it as rootDisk.baseImage.
	// +required
	VolumeName ResourceName `json:"volumeName"`

	// source says where the image comes from.
	// +required
	Source BaseImageSource `json:"source"`

	// delivery is Push, with which the operator fetches the image once and sends it to each host, or Pull, with which each host fetches it from the
	// source by itself. Pull needs a source of type HTTPS with a sha256.
	// +optional
	// +kubebuilder:default=Push
	Delivery BaseImageDelivery `json:"delivery,omitempty"`
}

// BaseImageDelivery says how an image gets to a host.
// +kubebuilder:validation:Enum=Push;Pull
type BaseImageDelivery string

const (
	// DeliveryPush sends it from the operator.
	DeliveryPush BaseImageDelivery = "Push"
	// DeliveryPull has the host fetch it.
	DeliveryPull BaseImageDelivery = "Pull"
)

// BaseImageSource is where a base image comes from. Exactly the member that type names is set.
// +kubebuilder:validation:XValidation:rule="self.type == 'HTTPS' ? has(self.https) && !has(self.oci) && !has(self.s3) : true",message="type HTTPS needs the member https and no other source"
// +kubebuilder:validation:XValidation:rule="self.type == 'OCI' ? has(self.oci) && !has(self.https) && !has(self.s3) : true",message="type OCI needs the member oci and no other source"
// +kubebuilder:validation:XValidation:rule="self.type == 'S3' ? has(self.s3) && !has(self.https) && !has(self.oci) : true",message="type S3 needs the member s3 and no other source"
type BaseImageSource struct {
	// type names the member that is set.
	// +required
	Type SourceType `json:"type"`

	// https fetches the image from an HTTPS server.
	// +optional
	HTTPS *HTTPSBaseImage `json:"https,omitempty"`

	// oci fetches the image as the single blob of an artifact.
	// +optional
	OCI *OCIBaseImage `json:"oci,omitempty"`

	// s3 fetches the image as an object of a bucket.
	// +optional
	S3 *S3BaseImage `json:"s3,omitempty"`
}

// HTTPSBaseImage is a base image on an HTTPS server.
type HTTPSBaseImage struct {
	HTTPSAccess `json:",inline"`

	// url is where the image is.
	// +required
	// +kubebuilder:validation:MinLength=1
	URL HTTPSURL `json:"url"`

	// sha256 is the digest of the decompressed image; recommended whenever the URL's content may change.
	// +optional
	SHA256 SHA256 `json:"sha256,omitempty"`
}

// OCIBaseImage is a base image in an OCI registry.
type OCIBaseImage struct {
	OCIAccess `json:",inline"`

	// blobTitle is the org.opencontainers.image.title of the blob, for artifacts with more than one.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	BlobTitle string `json:"blobTitle,omitempty"`

	// sha256 is the digest of the decompressed image.
	// +optional
	SHA256 SHA256 `json:"sha256,omitempty"`
}

// S3BaseImage is a base image in an S3-compatible store.
type S3BaseImage struct {
	S3Access `json:",inline"`

	// key is the image's object key.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Key string `json:"key"`

	// sha256 is the digest of the decompressed image.
	// +optional
	SHA256 SHA256 `json:"sha256,omitempty"`
}
