// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"maps"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
)

// bootFrom is spec.bootArtifacts with one source, and with other members beside it.
func bootFrom(kind, member string, source map[string]any, others ...map[string]any) map[string]any {
	boot := map[string]any{"source": map[string]any{"type": kind, member: source}}
	for _, o := range others {
		maps.Copy(boot, o)
	}
	return boot
}

func TestBootArtifacts(t *testing.T) {
	digest := strings.Repeat("0a", 32)
	secret := map[string]any{"name": "c"}
	https := func(others map[string]any) map[string]any {
		s := map[string]any{"kernelURL": "https://a.example.com/vmlinuz", "initramfsURL": "https://a.example.com/initramfs.img"}
		maps.Copy(s, others)
		return s
	}
	oci := func(others map[string]any) map[string]any {
		s := map[string]any{"reference": "registry.example.com/boot:1"}
		maps.Copy(s, others)
		return s
	}
	with := func(member string, value any) map[string]any {
		return bootFrom("HTTPS", "https", https(nil), map[string]any{member: value})
	}
	at := spec("bootArtifacts")
	check(t, clusterYAML, []row{
		{"every field of HTTPS is accepted", at, bootFrom("HTTPS", "https", https(map[string]any{
			"kernelSHA256": digest, "initramfsSHA256": digest, "credentialsSecretRef": secret, "insecureSkipTLSVerify": true,
		}), map[string]any{"hostPath": "/srv/boot", "kernelArgs": "ignition.platform.id=metal\nconsole=ttyS0\n"}), nil},
		{"every field of OCI is accepted", at, bootFrom("OCI", "oci", oci(map[string]any{
			"kernelLayerTitle": "k", "initramfsLayerTitle": "i", "plainHTTP": true, "insecureSkipTLSVerify": true,
			"kernelSHA256": digest, "initramfsSHA256": digest, "credentialsSecretRef": secret,
		})), nil},
		{"every field of S3 is accepted", at, bootFrom("S3", "s3", map[string]any{
			"endpoint": "s3.example.com:9000", "region": "us-east-1", "bucket": "b", "kernelKey": "k", "initramfsKey": "i", "usePathStyle": true,
			"insecure": true, "insecureSkipTLSVerify": true, "kernelSHA256": digest, "initramfsSHA256": digest, "credentialsSecretRef": secret,
		}), nil},
		{"credentials that no Secret can have are refused", at,
			bootFrom("OCI", "oci", oci(map[string]any{"credentialsSecretRef": map[string]any{"name": "a/b"}}), map[string]any{"hostPath": "/var/lib/caplv/"}),
			[]string{`spec.bootArtifacts.source.oci.credentialsSecretRef.name: Invalid value: "a/b"`, `write /var/lib/caplv`}},
		{"HTTPS credentials of another namespace are refused", at,
			bootFrom("HTTPS", "https", https(map[string]any{"credentialsSecretRef": map[string]any{"name": "c", "namespace": "kube-system"}})),
			[]string{`spec.bootArtifacts.source.https.credentialsSecretRef.namespace`, "put a copy there"}},
		{"S3 credentials of another namespace are refused", at, bootFrom("S3", "s3", map[string]any{
			"endpoint": "s3.example.com", "bucket": "b", "kernelKey": "k", "initramfsKey": "i",
			"credentialsSecretRef": map[string]any{"name": "c", "namespace": "kube-system"},
		}), []string{`spec.bootArtifacts.source.s3.credentialsSecretRef.namespace`, "put a copy there"}},
		{"one layer for both files is refused", at, bootFrom("OCI", "oci", oci(map[string]any{"kernelLayerTitle": "boot", "initramfsLayerTitle": "boot"})),
			[]string{`spec.bootArtifacts.source.oci.initramfsLayerTitle: Invalid value: "boot"`, "title of the other one"}},
		{"the layer of the other file's default is refused", at, bootFrom("OCI", "oci", oci(map[string]any{"initramfsLayerTitle": "vmlinuz"})),
			[]string{`spec.bootArtifacts.source.oci.initramfsLayerTitle`}},
		{"a directory with .. is refused", at, with("hostPath", "/var/lib/caplv/../x"), []string{`spec.bootArtifacts.hostPath`, "write /var/lib/x"}},
		{"the place of all that is CAPLV's is refused", at, with("hostPath", "/var/lib/caplv"), []string{`spec.bootArtifacts.hostPath`, "write /var/lib/caplv/boot"}},
		{"a directory with a blank is refused", at, with("hostPath", "/srv/boot files"), []string{`spec.bootArtifacts.hostPath`, "letters, digits"}},
		{"a hidden directory is refused", at, with("hostPath", "/srv/.boot"), []string{`spec.bootArtifacts.hostPath`, "begin with '.'"}},
		{"a long directory is refused", at, with("hostPath", "/"+strings.Repeat("a", 200)), []string{`spec.bootArtifacts.hostPath`, "200"}},
		{"more than a kernel reads is refused", at, with("kernelArgs", strings.Repeat("a", 2048)), []string{`spec.bootArtifacts.kernelArgs`, "2047 bytes", "shorten it"}},
		{"lines and blanks do not count more than once", at, with("kernelArgs", "a"+strings.Repeat("\n ", 1500)), nil},
		{"a command line with an escape is refused", at, with("kernelArgs", "console=\x1b[2J"), []string{`spec.bootArtifacts.kernelArgs`, "not printable"}},
	})
}

func TestBootArtifactsHaveTheirDefaults(t *testing.T) {
	g := NewWithT(t)
	lc := typed(g, clusterYAML, &infrav1.LibvirtCluster{}, namespace(t), "c")
	lc.Spec.BootArtifacts = &infrav1.BootArtifacts{Source: infrav1.BootArtifactsSource{
		Type: infrav1.SourceTypeOCI, OCI: &infrav1.OCIBootArtifacts{OCIAccess: infrav1.OCIAccess{Reference: "registry.example.com/boot:1"}},
	}}
	g.Expect(suite.cp.Client().Create(t.Context(), lc)).To(Succeed())
	g.Expect(lc.Spec.BootArtifacts.HostPath).To(Equal("/var/lib/caplv/boot"))
	g.Expect(lc.Spec.BootArtifacts.Source.OCI.KernelLayerTitle).To(Equal("vmlinuz"))
	g.Expect(lc.Spec.BootArtifacts.Source.OCI.InitramfsLayerTitle).To(Equal("initramfs.img"))
}
