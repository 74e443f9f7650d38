// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"encoding/json"
	"encoding/pem"
	"net/url"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/test/bench/controlplane"
	"github.com/caplv/caplv/test/bench/host"
)

const (
	nodeImageName = "guest-node.qcow2"
	// nodesServerName is how nodes reach the API server: their host's network forwards one port to it.
	nodesServerName  = "api.caplv.test"
	nodesGateway     = "192.0.2.1"
	nodesPort        = "6443"
	nodeAddress      = "192.0.2.50"
	nodeKubeletPort  = "10250"
	nodeMemory       = 1024
	nodeDisk         = "2Gi"
	approvedByCAPLV  = "ApprovedByCAPLV"
	nodeBootTime     = 10 * time.Minute
	nodeCertificates = 2 * time.Minute
)

var (
	//go:embed testdata/kubelet.service
	kubeletUnit string
	//go:embed testdata/kubelet.yaml
	kubeletConfig string
)

// TestAMachineBecomesANodeAndLeaves boots a guest in which nothing is pretended: Ignition brings a real kubelet its unit, its configuration
// and a bootstrap token; the operator approves what the kubelet asks for, and a real kube-controller-manager signs it. Cluster API links the
// Node, and drains it in the end.
func TestAMachineBecomesANodeAndLeaves(t *testing.T) {
	started := time.Now()
	step := func(what string) { t.Logf("%6.1f s: %s", time.Since(started).Seconds(), what) }
	w := newWorld(t, (*world).prepareForNodes)
	step("the host is up")
	w.startControllerManager(controlplane.SigningController, controlplane.DisruptionController)
	w.giveControlPlane()
	w.expectHost("True/HostReady")
	w.createMachineWith(w.nodeMachine("worker01"), w.nodeIgnition())
	lm := w.expectMachine("worker01", infrav1.MachineReadyCondition, "True/Running")
	step("the machine runs")

	node := w.expectNode(lm)
	step("the Node is ready")
	w.checkNode(lm, node)
	w.checkClientCertificate(lm)
	w.checkServingCertificate(lm)
	step("the kubelet serves with its certificate")
	w.expectMachine("worker01", infrav1.NodeJoinedCondition, "True/"+infrav1.NodeJoinedReason)
	w.expectMachine("worker01", infrav1.NodeLabelledCondition, "True/"+infrav1.NodeLabelledReason)
	w.expectLinked("worker01", node)
	step("Cluster API knows the Node")
	pod, budget := w.runGuardedPod(node)
	step("a Pod runs")

	w.deleteMachine("worker01")
	w.expectHeldUp("worker01", node, pod)
	step("the Pod's budget holds the deletion up")
	w.allow(budget)
	w.expectGone("worker01")
	step("the machine is gone")
	w.expectAllGone(pod, node)
	w.expectListing(w.untouched)
}

// prepareForNodes gives the host the node's image and a way to the API server. The host is the machines' gateway.
func (w *world) prepareForNodes() {
	w.t.Helper()
	image, err := host.NodeImage(w.t.Context(), suite.repository)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.g.Expect(w.host.Copy(w.t.Context(), image, "/var/lib/libvirt/images/"+nodeImageName)).To(Succeed())
	w.g.Expect(w.host.Run(w.t.Context(), "virsh", "-c", "qemu:///system", "pool-refresh", "default")).To(Succeed())
	w.g.Expect(w.host.Run(w.t.Context(), "ip", "addr", "add", nodesGateway+"/24", "dev", "br0")).To(Succeed())
	server, err := url.Parse(suite.cp.RESTConfig().Host)
	w.g.Expect(err).NotTo(HaveOccurred())
	forward, err := w.host.Forward(nodesGateway+":"+nodesPort, server.Host)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.t.Cleanup(func() { _ = forward.Close() })
}

// startControllerManager runs controllers of kube-controller-manager for this test.
func (w *world) startControllerManager(controllers ...string) {
	w.t.Helper()
	process, err := suite.cp.StartControllerManager(w.t.Context(), controllers...)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.t.Cleanup(func() {
		if err := process.Stop(); err != nil {
			w.t.Error(err)
		}
	})
}

// nodeMachine is a machine that is large enough for a kubelet.
func (w *world) nodeMachine(name string) *infrav1.LibvirtMachine {
	lm := w.libvirtMachine(name)
	lm.Spec.Domain.VCPUs, lm.Spec.Domain.MemoryMB = ptr.To[int32](2), ptr.To[int32](nodeMemory)
	lm.Spec.RootDisk.Size, lm.Spec.RootDisk.BaseImage = resource.MustParse(nodeDisk), nodeImageName
	lm.Spec.NodeLabels = map[string]string{"example.com/site": "standby", "node-role.kubernetes.io/worker": ""}
	lm.Spec.NodeAnnotations = map[string]string{"example.com/contact": "ops@example.com"}
	return lm
}

// nodeIgnition is what a bootstrap provider would give to every worker: nothing in it is about this machine.
func (w *world) nodeIgnition() string {
	w.t.Helper()
	kubeconfig, err := suite.cp.BootstrapKubeconfig(w.t.Context(), nodesPort)
	w.g.Expect(err).NotTo(HaveOccurred())
	file := func(path string, mode int, content string) map[string]any {
		return map[string]any{"path": path, "mode": mode, "overwrite": true, "contents": map[string]any{"source": "data:," + url.PathEscape(content)}}
	}
	config, err := json.Marshal(map[string]any{
		"ignition": map[string]any{"version": "3.2.0"},
		"storage": map[string]any{"files": []any{
			file("/etc/hosts", 0o644, "127.0.0.1 localhost\n"+nodesGateway+" "+nodesServerName+"\n"),
			file("/etc/kubernetes/bootstrap.kubeconfig", 0o600, string(kubeconfig)),
			file("/etc/kubernetes/kubelet.conf", 0o644, kubeletConfig),
		}},
		"systemd": map[string]any{"units": []any{map[string]any{"name": "kubelet.service", "enabled": true, "contents": kubeletUnit}}},
	})
	w.g.Expect(err).NotTo(HaveOccurred())
	return string(config)
}

// expectNode waits until the machine's Node is in the cluster and ready. When it does not come, the guest's console says why.
func (w *world) expectNode(lm *infrav1.LibvirtMachine) *corev1.Node {
	w.t.Helper()
	node := &corev1.Node{}
	w.t.Cleanup(func() {
		if w.t.Failed() {
			log, err := w.host.Exec(cleanupContext(w.t), "tail", "-n", "60", "/var/log/libvirt/qemu/"+lm.Status.NodeName+"-serial.log")
			w.t.Logf("the guest's console (%v):\n%s", err, log)
		}
		// The test's API server serves other tests as well.
		_ = suite.cp.Client().Delete(cleanupContext(w.t), node)
	})
	w.g.Eventually(func(g Gomega) {
		g.Expect(suite.cp.Client().Get(w.t.Context(), client.ObjectKey{Name: lm.Status.NodeName}, node)).To(Succeed())
		g.Expect(node.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))), "%v", node.Status.Conditions)
	}, nodeBootTime, time.Second).Should(Succeed())
	return node
}

// checkNode checks what the kubelet and the operator have made of the Node.
func (w *world) checkNode(lm *infrav1.LibvirtMachine, node *corev1.Node) {
	w.t.Helper()
	w.g.Eventually(func(g Gomega) {
		g.Expect(suite.cp.Client().Get(w.t.Context(), client.ObjectKeyFromObject(node), node)).To(Succeed())
		for key, value := range lm.Spec.NodeLabels {
			g.Expect(node.Labels).To(HaveKeyWithValue(key, value))
		}
		for key, value := range lm.Spec.NodeAnnotations {
			g.Expect(node.Annotations).To(HaveKeyWithValue(key, value))
		}
	}, time.Minute, poll).Should(Succeed())
	w.g.Expect(node.Spec.ProviderID).To(Equal(lm.Spec.ProviderID))
	w.g.Expect(w.eventReasons("LibvirtMachine", lm.Name)).NotTo(ContainElement("ProviderIDSet"), "the kubelet has not registered with its provider ID")
	w.g.Expect(node.Labels).To(HaveKeyWithValue(corev1.LabelHostname, lm.Status.NodeName))
	w.g.Expect(node.Status.Addresses).To(ConsistOf(
		corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: nodeAddress}, corev1.NodeAddress{Type: corev1.NodeHostName, Address: lm.Status.NodeName}))
	w.g.Expect(node.Status.NodeInfo.ContainerRuntimeVersion).To(HavePrefix("containerd://"))
}

// request waits for the signed certificate of a machine's kubelet, and returns it with the request.
func (w *world) request(lm *infrav1.LibvirtMachine, signer string) (certificatesv1.CertificateSigningRequest, *x509.Certificate) {
	w.t.Helper()
	var signed []certificatesv1.CertificateSigningRequest
	w.g.Eventually(func(g Gomega) {
		all := &certificatesv1.CertificateSigningRequestList{}
		g.Expect(suite.cp.Client().List(w.t.Context(), all)).To(Succeed())
		signed = nil
		for _, request := range all.Items {
			subject := subjectOf(g, request.Spec.Request)
			if request.Spec.SignerName == signer && subject == "system:node:"+lm.Status.NodeName && len(request.Status.Certificate) > 0 {
				signed = append(signed, request)
			}
		}
		g.Expect(signed).To(HaveLen(1))
	}, nodeCertificates, poll).Should(Succeed())
	w.g.Expect(signed[0].Status.Conditions).To(ConsistOf(And(
		HaveField("Type", certificatesv1.CertificateApproved), HaveField("Reason", approvedByCAPLV))))
	return signed[0], parse(w.g, "CERTIFICATE", signed[0].Status.Certificate, x509.ParseCertificate)
}

// parse reads one PEM block.
func parse[T any](g Gomega, kind string, content []byte, parser func([]byte) (T, error)) T {
	block, _ := pem.Decode(content)
	g.Expect(block).To(HaveField("Type", kind))
	parsed, err := parser(block.Bytes)
	g.Expect(err).NotTo(HaveOccurred())
	return parsed
}

func subjectOf(g Gomega, request []byte) string {
	return parse(g, "CERTIFICATE REQUEST", request, x509.ParseCertificateRequest).Subject.CommonName
}

// checkClientCertificate checks that a bootstrap token was enough, and once.
func (w *world) checkClientCertificate(lm *infrav1.LibvirtMachine) {
	w.t.Helper()
	request, certificate := w.request(lm, certificatesv1.KubeAPIServerClientKubeletSignerName)
	w.g.Expect(request.Spec.Username).To(HavePrefix("system:bootstrap:"))
	w.g.Expect(certificate.Subject.Organization).To(Equal([]string{"system:nodes"}))
	w.g.Expect(w.machine(lm.Name).Status.NodeClientCertificate).To(HaveField("RequestName", request.Name))
}

// checkServingCertificate checks that the kubelet serves with a certificate of the cluster for what is in the machine's spec.
func (w *world) checkServingCertificate(lm *infrav1.LibvirtMachine) {
	w.t.Helper()
	request, certificate := w.request(lm, certificatesv1.KubeletServingSignerName)
	w.g.Expect(request.Spec.Username).To(Equal("system:node:" + lm.Status.NodeName))
	w.g.Expect(certificate.DNSNames).To(Equal([]string{lm.Status.NodeName}))
	authority, err := os.ReadFile(suite.cp.SigningAuthority())
	w.g.Expect(err).NotTo(HaveOccurred())
	roots := x509.NewCertPool()
	w.g.Expect(roots.AppendCertsFromPEM(authority)).To(BeTrue())
	w.g.Eventually(func(g Gomega) {
		connection, err := w.host.Dial(w.t.Context(), nodeAddress+":"+nodeKubeletPort)
		g.Expect(err).NotTo(HaveOccurred())
		defer func() { _ = connection.Close() }()
		g.Expect(connection.SetDeadline(time.Now().Add(20 * time.Second))).To(Succeed())
		client := tls.Client(connection, &tls.Config{RootCAs: roots, ServerName: nodeAddress, MinVersion: tls.VersionTLS12})
		g.Expect(client.HandshakeContext(w.t.Context())).To(Succeed())
		g.Expect(client.ConnectionState().PeerCertificates[0].Raw).To(Equal(certificate.Raw))
	}, nodeCertificates, time.Second).Should(Succeed())
}
