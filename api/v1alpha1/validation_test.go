// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/test/bench/controlplane"
)

var cp *controlplane.ControlPlane

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "caplv-api-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cp, err = controlplane.Start(ctx, controlplane.Options{
		Dir: dir, CRDDir: filepath.Join("..", "..", "operator", "config", "crd"), WithoutCoreManager: true,
		AddToScheme: []func(*runtime.Scheme) error{infrav1.AddToScheme},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the control plane:", err)
		return 1
	}
	defer func() { _ = cp.Stop() }()
	return m.Run()
}

const machineYAML = `
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
kind: LibvirtMachine
metadata: {name: m, namespace: default}
spec:
  hostRef: {name: host}
  rootDisk: {size: 10Gi, storagePool: default, baseImage: rhcos.qcow2}
  network: {type: bridge, name: br0, addresses: ["192.0.2.50/24"], gateway: 192.0.2.1}
`

const hostYAML = `
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
kind: LibvirtHost
metadata: {name: h, namespace: default}
spec:
  uri: qemu+ssh://caplv@host.example.com/system
  secretRef: {name: key}
`

const clusterYAML = `
apiVersion: infrastructure.cluster.x-k8s.io/v1alpha1
kind: LibvirtCluster
metadata: {name: c, namespace: default}
spec:
  controlPlaneEndpoint: {host: api.example.com, port: 6443}
`

type mutation struct {
	name string
	base string
	// path and value are what is changed; a nil value removes the field.
	path  []string
	value any
	// want is part of the message; empty when the object must be accepted.
	want string
}

func spec(path ...string) []string { return append([]string{"spec"}, path...) }

var mutations = []mutation{
	{"the smallest machine is accepted", machineYAML, nil, nil, ""},
	{"a size may be a plain number of bytes", machineYAML, spec("rootDisk", "size"), int64(10 << 30), ""},
	{"a size below 1 MiB is refused", machineYAML, spec("rootDisk", "size"), "10k", "at least 1Mi"},
	{"a size that is no quantity is refused", machineYAML, spec("rootDisk", "size"), "large", "quantity of at least 1Mi"},
	{"an address without prefix length is refused", machineYAML, spec("network", "addresses"), []any{"192.0.2.50"}, "address with prefix length such as 192.168.1.50/24"},
	{"an address twice is refused", machineYAML, spec("network", "addresses"), []any{"192.0.2.50/24", "192.0.2.50/24"}, "Duplicate"},
	{"a machine without address is refused", machineYAML, spec("network", "addresses"), []any{}, "at least 1"},
	{"an IPv6 address is accepted", machineYAML, spec("network"), map[string]any{"type": "bridge", "name": "br0", "addresses": []any{"2001:db8::50/64"}, "gateway": "fe80::1"}, ""},
	{"a gateway outside the subnets is refused", machineYAML, spec("network", "gateway"), "198.51.100.1", "subnet of one of the addresses"},
	{"a gateway that is no address is refused", machineYAML, spec("network", "gateway"), "gw", "IPv4 or IPv6 address such as"},
	{"an IPv4 address as ipv6Gateway is refused", machineYAML, spec("network", "ipv6Gateway"), "192.0.2.1", "must be an IPv6 address"},
	{"a multicast MAC address is refused", machineYAML, spec("network", "macAddress"), "01:00:5e:00:00:01", "unicast MAC address"},
	{"a unicast MAC address is accepted", machineYAML, spec("network", "macAddress"), "52:54:00:12:34:56", ""},
	{"a bridge name of 16 characters is refused", machineYAML, spec("network", "name"), "br0123456789abcd", "at most 15"},
	{"a pool name with a quote is refused", machineYAML, spec("rootDisk", "storagePool"), "a'; rm", "letters, digits"},
	{"a volume name that begins with a dash is refused", machineYAML, spec("rootDisk", "baseImage"), "-f", "must not begin with a sign"},
	{"a volume name with a slash is refused", machineYAML, spec("rootDisk", "baseImage"), "../x", "letters, digits"},
	{"no pool at all is refused", machineYAML, spec("rootDisk", "storagePool"), nil, "storagePool is required unless ephemeralPool"},
	{"tmpfs needs a pool for the base image", machineYAML, spec("rootDisk", "ephemeralPool"), true, "baseImagePool is required"},
	{"a tmpfs size without tmpfs is refused", machineYAML, spec("rootDisk", "ephemeralPoolSize"), "1G", "needs ephemeralPool"},
	{"a percentage over 100 is refused", machineYAML, spec("rootDisk", "ephemeralPoolSize"), "101%", "from 1% to 100%"},
	{"a tmpfs size with an option behind it is refused", machineYAML, spec("rootDisk", "ephemeralPoolSize"), "1G,uid=0", "512M or 16G"},
	{"an unknown firmware is refused", machineYAML, spec("domain"), map[string]any{"firmware": "efi"}, `"uefi", "bios"`},
	{"an unknown recovery policy is refused", machineYAML, spec("recoveryPolicy"), "Resume", `"None", "Restart"`},
	{"an unknown bootstrap format is refused", machineYAML, spec("bootstrapFormat"), "kickstart", `"ignition", "cloud-init"`},
	{"node labels of any key are accepted", machineYAML, spec("nodeLabels"), map[string]any{"dynatrace": "true", "node-role.kubernetes.io/app": ""}, ""},
	{"data disks of one name are refused", machineYAML, spec("additionalDisks"), []any{
		map[string]any{"name": "a", "size": "1Gi", "storagePool": "p"}, map[string]any{"name": "a", "size": "1Gi", "storagePool": "p"}}, "Duplicate"},

	{"the smallest host is accepted", hostYAML, nil, nil, ""},
	{"an IPv6 host with port is accepted", hostYAML, spec("uri"), "qemu+ssh://caplv@[2001:db8::1]:2222/session", ""},
	{"a URI without user is refused", hostYAML, spec("uri"), "qemu+ssh://host/system", "qemu+ssh://USER@HOST"},
	{"a URI with a password is refused", hostYAML, spec("uri"), "qemu+ssh://a:b@host/system", "qemu+ssh://USER@HOST"},
	{"another transport is refused", hostYAML, spec("uri"), "qemu+tcp://a@host/system", "qemu+ssh://USER@HOST"},
	{"query parameters are refused", hostYAML, spec("uri"), "qemu+ssh://a@host/system?socket=/x", "without query parameters"},
	{"an MD5 fingerprint is refused", hostYAML, spec("hostKeyFingerprint"), "MD5:aa:bb", "SHA256: followed by 43"},
	{"a relative firmware path is refused", hostYAML, spec("firmwarePath"), "OVMF.fd", "absolute path"},
	{"a negative reservation is refused", hostYAML, spec("reservedResources"), map[string]any{"vcpus": int64(-1)}, "greater than or equal to 0"},
	{"a reservation of nothing is accepted", hostYAML, spec("reservedResources"), map[string]any{"vcpus": int64(0), "memoryMB": int64(0)}, ""},
	{"a probe every second is refused", hostYAML, spec("healthCheckIntervalSeconds"), int64(1), "greater than or equal to 30"},
	{"an unknown virtType is refused", hostYAML, spec("virtType"), "xen", `"kvm", "qemu"`},

	{"the smallest cluster is accepted", clusterYAML, nil, nil, ""},
	{"boot artifacts by HTTPS are accepted", clusterYAML, spec("bootArtifacts"), map[string]any{"source": map[string]any{"type": "HTTPS",
		"https": map[string]any{"kernelURL": "https://a.example.com/vmlinuz", "initramfsURL": "https://a.example.com/initramfs.img"}}}, ""},
	{"a source that its type does not name is refused", clusterYAML, spec("bootArtifacts"), map[string]any{"source": map[string]any{"type": "OCI",
		"https": map[string]any{"kernelURL": "https://a.example.com/vmlinuz", "initramfsURL": "https://a.example.com/initramfs.img"}}}, "type OCI needs the member oci"},
	{"two sources are refused", clusterYAML, spec("baseImage"), map[string]any{"pool": "default", "volumeName": "v.qcow2", "source": map[string]any{"type": "S3",
		"https": map[string]any{"url": "https://a.example.com/v"}, "s3": map[string]any{"endpoint": "s3.example.com", "bucket": "b", "key": "k"}}}, "no other source"},
	{"a base image by plain HTTP is refused", clusterYAML, spec("baseImage"), map[string]any{"pool": "default", "volumeName": "v.qcow2", "source": map[string]any{"type": "HTTPS",
		"https": map[string]any{"url": "http://a.example.com/v"}}}, "must begin with https://"},
	{"a short digest is refused", clusterYAML, spec("baseImage"), map[string]any{"pool": "default", "volumeName": "v.qcow2", "source": map[string]any{"type": "HTTPS",
		"https": map[string]any{"url": "https://a.example.com/v", "sha256": "abc"}}}, "64 lower-case hexadecimal digits"},
	{"an S3 endpoint with a scheme is refused", clusterYAML, spec("baseImage"), map[string]any{"pool": "default", "volumeName": "v.qcow2", "source": map[string]any{"type": "S3",
		"s3": map[string]any{"endpoint": "https://s3.example.com", "bucket": "b", "key": "k"}}}, "without a scheme"},
}

func TestTheAPIServerAcceptsAndRefuses(t *testing.T) {
	for _, row := range mutations {
		t.Run(row.name, func(t *testing.T) {
			g := NewWithT(t)
			err := cp.Client().Create(t.Context(), mutate(g, row), client.DryRunAll)
			if row.want == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(row.want)))
		})
	}
}

func mutate(g Gomega, m mutation) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	g.Expect(yaml.Unmarshal([]byte(m.base), &u.Object)).To(Succeed())
	switch {
	case m.path == nil:
	case m.value == nil:
		unstructured.RemoveNestedField(u.Object, m.path...)
	default:
		g.Expect(unstructured.SetNestedField(u.Object, m.value, m.path...)).To(Succeed())
	}
	return u
}

func TestDefaults(t *testing.T) {
	g := NewWithT(t)
	u := mutate(g, mutation{base: machineYAML})
	g.Expect(cp.Client().Create(t.Context(), u, client.DryRunAll)).To(Succeed())
	for path, want := range map[string]any{
		"domain.machine": "q35", "domain.firmware": "uefi", "rootDisk.bus": "virtio", "rootDisk.cloneStrategy": "copy-on-write",
		"network.model": "virtio", "bootstrapFormat": "ignition", "recoveryPolicy": "None",
	} {
		g.Expect(field(u, path)).To(Equal(want), path)
	}
	u = mutate(g, mutation{base: hostYAML})
	g.Expect(cp.Client().Create(t.Context(), u, client.DryRunAll)).To(Succeed())
	for path, want := range map[string]any{
		"virtType": "kvm", "reservedResources.vcpus": int64(2), "reservedResources.memoryMB": int64(4096), "healthCheckIntervalSeconds": int64(300),
	} {
		g.Expect(field(u, path)).To(Equal(want), path)
	}
}

func field(u *unstructured.Unstructured, path string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(u.Object, append([]string{"spec"}, strings.Split(path, ".")...)...)
	return value
}

func TestAMachineIsFixedAtCreation(t *testing.T) {
	g := NewWithT(t)
	u := mutate(g, mutation{base: machineYAML})
	g.Expect(cp.Client().Create(t.Context(), u)).To(Succeed())
	for _, row := range []struct {
		path  string
		value any
		want  string
	}{
		{"hostRef.name", "other", "hostRef cannot be changed"},
		{"domain.memoryMB", int64(512), "domain cannot be changed"},
		{"rootDisk.size", "20Gi", "rootDisk cannot be changed"},
		{"network.gateway", "192.0.2.2", "network cannot be changed"},
		{"bootstrapFormat", "cloud-init", "bootstrapFormat cannot be changed"},
		{"additionalDisks", []any{map[string]any{"name": "a", "size": "1Gi", "storagePool": "p"}}, "additionalDisks cannot be changed"},
	} {
		changed := u.DeepCopy()
		g.Expect(unstructured.SetNestedField(changed.Object, row.value, append([]string{"spec"}, strings.Split(row.path, ".")...)...)).To(Succeed())
		g.Expect(cp.Client().Update(t.Context(), changed, client.DryRunAll)).To(MatchError(ContainSubstring(row.want)), row.path)
	}
	for path, value := range map[string]any{"nodeLabels": map[string]any{"a": "b"}, "nodeAnnotations": map[string]any{"a": "b"}, "providerID": "libvirt://host/1"} {
		g.Expect(cp.Client().Get(t.Context(), client.ObjectKeyFromObject(u), u)).To(Succeed())
		g.Expect(unstructured.SetNestedField(u.Object, value, "spec", path)).To(Succeed())
		g.Expect(cp.Client().Update(t.Context(), u)).To(Succeed(), path)
	}
	g.Expect(unstructured.SetNestedField(u.Object, "libvirt://host/2", "spec", "providerID")).To(Succeed())
	g.Expect(cp.Client().Update(t.Context(), u)).To(MatchError(ContainSubstring("providerID cannot be changed once it is set")))
}

// TestTheCRDsFollowTheContract checks what Cluster API and its users look up in the CRDs themselves.
func TestTheCRDsFollowTheContract(t *testing.T) {
	for kind, short := range map[string]string{"libvirthosts": "lvh", "libvirtclusters": "lvc", "libvirtmachines": "lvm"} {
		t.Run(kind, func(t *testing.T) {
			g := NewWithT(t)
			crd := &unstructured.Unstructured{}
			crd.SetAPIVersion("apiextensions.k8s.io/v1")
			crd.SetKind("CustomResourceDefinition")
			g.Expect(cp.Client().Get(t.Context(), client.ObjectKey{Name: kind + ".infrastructure.cluster.x-k8s.io"}, crd)).To(Succeed())
			g.Expect(crd.GetLabels()).To(HaveKeyWithValue("cluster.x-k8s.io/v1beta2", "v1alpha1"))
			names, _, _ := unstructured.NestedStringSlice(crd.Object, "spec", "names", "shortNames")
			g.Expect(names).To(Equal([]string{short}))
			categories, _, _ := unstructured.NestedStringSlice(crd.Object, "spec", "names", "categories")
			g.Expect(categories).To(Equal([]string{"cluster-api"}))
		})
	}
}
