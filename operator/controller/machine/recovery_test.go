// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/hostconn"
	"github.com/caplv/caplv/operator/hostctl"
	"github.com/caplv/caplv/operator/hosts"
	"github.com/caplv/caplv/operator/virsh"
)

func said(reason virsh.Reason) error {
	return &virsh.Error{Reason: reason, Command: "x", Message: "words"}
}

func helper(code hostctl.Code) error { return &hostctl.Error{Code: code, Message: "words"} }

func link(reason hostconn.Reason) error {
	return &hostconn.Error{Reason: reason, Address: "b:22", Err: errors.New("words")}
}

// failures are errors of a method of the host, and the reasons that they have.
var failures = []struct {
	method string
	err    error
	want   string
}{
	{"Connect", link(hostconn.Unreachable), infrav1.UnreachableReason},
	{"Connect", link(hostconn.Timeout), infrav1.TimeoutReason},
	{"Connect", link(hostconn.Unauthorized), infrav1.UnauthorizedReason},
	{"Connect", link(hostconn.HostKeyMismatch), infrav1.HostKeyMismatchReason},
	{"Connect", link(hostconn.InvalidKey), infrav1.InvalidPrivateKeyReason},
	{"Connect", hosts.NewConfigError(infrav1.SecretNotFoundReason, "words"), infrav1.SecretNotFoundReason},
	{"Connect", hosts.NewConfigError(infrav1.InvalidURIReason, "words"), infrav1.InvalidURIReason},
	{"Observe", link(hostconn.Closed), infrav1.UnreachableReason},
	{"Observe", fmt.Errorf("words: %w", context.DeadlineExceeded), infrav1.TimeoutReason},
	{"Observe", said(virsh.VirshMissing), infrav1.VirshMissingReason},
	{"Observe", said(virsh.LibvirtUnavailable), infrav1.LibvirtUnavailableReason},
	{"Observe", said(virsh.Unknown), infrav1.ProvisioningFailedReason},
	{"DefineDomain", said(virsh.DomainExists), infrav1.DomainAlreadyExistsReason},
	{"DefineDomain", said(virsh.VirtTypeUnsupported), infrav1.VirtTypeUnsupportedReason},
	{"Stage", helper(hostctl.CodeHelperMissing), infrav1.HelperUnavailableReason},
	{"Stage", helper(hostctl.CodeHelperNotPermitted), infrav1.HelperUnavailableReason},
	{"Stage", helper(hostctl.CodeNotOurs), infrav1.DirectoryAlreadyExistsReason},
	{"Stage", helper(hostctl.CodeNoSpace), infrav1.NoSpaceReason},
	{"Stage", helper(hostctl.CodeBusy), infrav1.ProvisioningFailedReason},
	{"CreateVolume", said(virsh.NoSpace), infrav1.NoSpaceReason},
	{"CreateVolume", said(virsh.VolumeExists), infrav1.VolumeAlreadyExistsReason},
	{"CreateVolume", said(virsh.PoolNotFound), infrav1.PoolNotFoundReason},
	{"StartDomain", said(virsh.BridgeNotFound), infrav1.BridgeNotFoundReason},
	{"StartDomain", said(virsh.NetworkNotFound), infrav1.NetworkNotFoundReason},
	{"StartDomain", said(virsh.PermissionDenied), infrav1.HostPermissionDeniedReason},
	{"DefineDomain", said(virsh.FirmwareNotFound), infrav1.FirmwareNotFoundReason},
	{"DefineDomain", said(virsh.MachineTypeUnsupported), infrav1.MachineTypeUnsupportedReason},
	{"DefineDomain", said(virsh.InvalidDefinition), infrav1.InvalidDefinitionReason},
	{"StartDomain", said(virsh.ImageInUse), infrav1.ImageInUseReason},
	{"StartDomain", said(virsh.ImageInvalid), infrav1.ImageInvalidReason},
	{"CreateVolume", said(virsh.PoolInactive), infrav1.PoolInactiveReason},
	{"CreateVolume", said(virsh.PoolConflict), infrav1.PoolConflictReason},
	{"StartDomain", said(virsh.VolumeNotFound), infrav1.VolumeNotFoundReason},
	{"CreateVolume", said(virsh.VolumeBusy), infrav1.VolumeBusyReason},
	{"StartDomain", said(virsh.FileNotFound), infrav1.HostFileNotFoundReason},
	{"StartDomain", said(virsh.BridgeHelperFailed), infrav1.SessionModeMisconfiguredReason},
	{"StartDomain", said(virsh.InsufficientMemory), infrav1.InsufficientCapacityReason},
	{"StartDomain", said(virsh.Unknown), infrav1.ProvisioningFailedReason},
}

// TestEveryFailureOfAHostIsNamedAndMendsByItself fails a method of the host while a machine is created, and then does not: no object is
// touched in between.
func TestEveryFailureOfAHostIsNamedAndMendsByItself(t *testing.T) {
	for _, row := range failures {
		t.Run(row.method+" fails for "+row.want, func(t *testing.T) {
			b := newBench(t, nil)
			host := &ailingHost{fakeHost: b.connector.host, method: row.method, ailment: row.err}
			b.r.Hosts = ailingConnector{host}
			lm, result := b.reconcile()
			b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(row.want))
			b.Expect(conditions.GetMessage(lm, infrav1.MachineReadyCondition)).To(ContainSubstring("words"), "the cause is told")
			b.Expect(lm.Status.Ready).To(HaveValue(BeFalse()))
			b.Expect(lm.Status.Initialization.Provisioned).To(BeNil())
			b.Expect(result.RequeueAfter).To(BeNumerically(">", 0))

			host.ailment = nil
			lm, _ = b.reconcile()
			b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.RunningReason))
			for _, c := range lm.Status.Conditions {
				b.Expect(c.Message).NotTo(ContainSubstring("words"), "the failure is still told in %s", c.Type)
			}
		})
	}
}

const (
	foreignDomain = `<domain type='qemu'><name>ns-prod-m</name><uuid>22222222-2222-2222-2222-222222222222</uuid></domain>`
	foreignPool   = `<pool type='dir'><name>ns-prod-m</name><uuid>33333333-3333-3333-3333-333333333333</uuid></pool>`
	largeImage    = `<volume type='file'><name>base.qcow2</name><capacity unit='bytes'>1048576000</capacity><target><path>/i</path><format type='qcow2'/></target></volume>`
)

func onNetwork(o *objects) {
	o.lmachine.Spec.Network.Type, o.lmachine.Spec.Network.Name = infrav1.NetworkTypeNetwork, "lan"
}

func onTmpfs(o *objects) {
	o.lmachine.Spec.RootDisk.EphemeralPool, o.lmachine.Spec.RootDisk.BaseImagePool = true, "default"
}

// lacks are what can be wrong on the host for one machine.
var lacks = []struct {
	name        string
	change      func(*objects)
	spoil, mend func(*fakeHost)
	want        string
}{
	{"a foreign domain", nil,
		func(h *fakeHost) { h.domains["ns-prod-m"] = &fakeDomain{xml: foreignDomain, running: true} },
		func(h *fakeHost) { delete(h.domains, "ns-prod-m") }, infrav1.DomainAlreadyExistsReason},
	{"a foreign volume", nil,
		func(h *fakeHost) { h.pools["default"].volumes["ns-prod-m-root.qcow2"] = baseVolumeXML },
		func(h *fakeHost) { delete(h.pools["default"].volumes, "ns-prod-m-root.qcow2") }, infrav1.VolumeAlreadyExistsReason},
	{"a foreign pool", onTmpfs,
		func(h *fakeHost) { h.pools["ns-prod-m"] = &fakePool{xml: foreignPool, active: true} },
		func(h *fakeHost) { delete(h.pools, "ns-prod-m") }, infrav1.PoolAlreadyExistsReason},
	{"no network", onNetwork,
		func(*fakeHost) {}, func(h *fakeHost) { h.networks["lan"] = true }, infrav1.NetworkNotFoundReason},
	{"an inactive network", onNetwork,
		func(h *fakeHost) { h.networks["lan"] = false }, func(h *fakeHost) { h.networks["lan"] = true }, infrav1.NetworkInactiveReason},
	{"no pool", func(o *objects) {
		o.lmachine.Spec.RootDisk.StoragePool, o.lmachine.Spec.RootDisk.BaseImagePool = "disks", "default"
	},
		func(*fakeHost) {},
		func(h *fakeHost) {
			h.pools["disks"] = &fakePool{xml: `<pool type='dir'><name>disks</name></pool>`, volumes: map[string]string{}}
		}, infrav1.PoolNotFoundReason},
	{"no base image", nil,
		func(h *fakeHost) { delete(h.pools["default"].volumes, "base.qcow2") },
		func(h *fakeHost) { h.pools["default"].volumes["base.qcow2"] = baseVolumeXML }, infrav1.BaseImageNotFoundReason},
	{"a base image that is too large", nil,
		func(h *fakeHost) { h.pools["default"].volumes["base.qcow2"] = largeImage },
		func(h *fakeHost) { h.pools["default"].volumes["base.qcow2"] = baseVolumeXML }, infrav1.RootDiskTooSmallReason},
}

// TestWhatAMachineLacksOnItsHostIsNamedAndMended changes the host, and no object, until the machine can run.
func TestWhatAMachineLacksOnItsHostIsNamedAndMended(t *testing.T) {
	for _, row := range lacks {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, row.change)
			host := b.connector.host
			row.spoil(host)
			before := host.inventory()
			lm, _ := b.reconcile()
			b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(row.want))
			b.Expect(host.inventory()).To(Equal(before), "what is not the machine's is not touched")
			row.mend(host)
			lm, _ = b.reconcile()
			b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.RunningReason))

			// And the deletion, while it is there.
			b = newBench(t, row.change)
			host = b.connector.host
			row.spoil(host)
			b.reconcile()
			b.delete()
			lm, _ = b.reconcile()
			b.Expect(lm).To(BeNil())
			b.Expect(host.inventory()).To(Equal(before), "what is not the machine's is not deleted")
		})
	}
}

// mendHost makes the LibvirtHost what it is in newObjects.
func mendHost(b *bench, o *objects) {
	lh := &infrav1.LibvirtHost{}
	b.Expect(b.r.Client.Get(b.t.Context(), client.ObjectKeyFromObject(o.lhost), lh)).To(Succeed())
	lh.Spec = o.lhost.Spec
	b.Expect(b.r.Client.Update(b.t.Context(), lh)).To(Succeed())
	lh.Status = o.lhost.Status
	b.Expect(b.r.Client.Status().Update(b.t.Context(), lh)).To(Succeed())
}

// laters are what can be missing around the machine.
var laters = []struct {
	name   string
	change func(*objects)
	mend   func(*bench, *objects)
	want   string
}{
	{"the host", func(o *objects) { o.lhost = nil },
		func(b *bench, o *objects) { b.Expect(b.r.Client.Create(b.t.Context(), o.lhost)).To(Succeed()) }, infrav1.HostNotFoundReason},
	{"the bootstrap data", func(o *objects) { o.secret = nil },
		func(b *bench, o *objects) { b.Expect(b.r.Client.Create(b.t.Context(), o.secret)).To(Succeed()) }, infrav1.WaitingForBootstrapDataReason},
	{"the Cluster", func(o *objects) { o.cluster = nil },
		func(b *bench, o *objects) { b.Expect(b.r.Client.Create(b.t.Context(), o.cluster)).To(Succeed()) }, infrav1.WaitingForClusterInfrastructureReason},
	{"the LibvirtCluster", func(o *objects) { o.lcluster = nil },
		func(b *bench, o *objects) { b.Expect(b.r.Client.Create(b.t.Context(), o.lcluster)).To(Succeed()) }, infrav1.WaitingForClusterInfrastructureReason},
	{"bootstrap data that can be read", func(o *objects) { o.secret.Data["value"] = []byte(`{"ignition":`) },
		func(b *bench, o *objects) {
			secret := &corev1.Secret{}
			b.Expect(b.r.Client.Get(b.t.Context(), client.ObjectKeyFromObject(o.secret), secret)).To(Succeed())
			secret.Data = o.secret.Data
			b.Expect(b.r.Client.Update(b.t.Context(), secret)).To(Succeed())
		}, infrav1.InvalidBootstrapDataReason},
	{"capacity on the host", func(o *objects) { o.lhost.Status.Capacity.AvailableMemoryMB = 100 }, mendHost, infrav1.InsufficientCapacityReason},
	{"a probe of the host", func(o *objects) { o.lhost.Status = infrav1.LibvirtHostStatus{} }, mendHost, infrav1.HostNotReadyReason},
	{"a host with networks", func(o *objects) {
		onNetwork(o)
		o.lhost.Spec.URI = "qemu+ssh://a@b/session"
	}, func(b *bench, o *objects) {
		b.connector.host.networks["lan"] = true
		mendHost(b, o)
	}, infrav1.NetworkTypeUnsupportedReason},
	{"a control plane that answers", func(o *objects) {
		o.lcluster.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: infrav1.ControlPlaneUnreachableReason}}
	}, func(b *bench, o *objects) {
		lc := &infrav1.LibvirtCluster{}
		b.Expect(b.r.Client.Get(b.t.Context(), client.ObjectKeyFromObject(o.lcluster), lc)).To(Succeed())
		lc.Status = o.lcluster.Status
		b.Expect(b.r.Client.Update(b.t.Context(), lc)).To(Succeed())
	}, infrav1.ControlPlaneUnreachableReason},
}

// TestWhatAMachineWaitsForMayComeLater changes the objects around the machine, and not the machine.
func TestWhatAMachineWaitsForMayComeLater(t *testing.T) {
	for _, row := range laters {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, row.change)
			lm, _ := b.reconcile()
			b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(row.want))
			row.mend(b, newObjects())
			lm, _ = b.reconcile()
			b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.RunningReason))
		})
	}
}

func TestAVolumeWhoseFileIsGoneDoesNotHoldUpADeletion(t *testing.T) {
	b := newBench(t, nil)
	before := b.connector.host.inventory()
	b.reconcile()
	b.r.Hosts = staleConnector{host: &staleHost{&ailingHost{fakeHost: b.connector.host}, "ns-prod-m-root.qcow2"}}
	b.delete()
	lm, _ := b.reconcile()
	b.Expect(lm).To(BeNil())
	b.Expect(b.connector.host.inventory()).To(Equal(before))
}

func TestAVolumeThatCannotBeDeletedStallsTheDeletionUntilItCan(t *testing.T) {
	b := newBench(t, nil)
	before := b.connector.host.inventory()
	b.reconcile()
	host := &ailingHost{fakeHost: b.connector.host, method: "DeleteVolume", ailment: errors.New("words")}
	b.r.Hosts = ailingConnector{host}
	b.delete()
	lm, _ := b.reconcile()
	b.Expect(conditions.GetReason(lm, infrav1.CleanupStalledCondition)).To(Equal(infrav1.CleanupFailedReason))
	b.Expect(conditions.GetMessage(lm, infrav1.CleanupStalledCondition)).To(ContainSubstring("DeleteVolume: words"))
	host.ailment = nil
	lm, _ = b.reconcile()
	b.Expect(lm).To(BeNil())
	b.Expect(b.connector.host.inventory()).To(Equal(before))
}

func TestADomainThatWasLostAndIsBackIsTheMachineAgain(t *testing.T) {
	b := newBench(t, nil)
	b.reconcile()
	lost := b.connector.host.domains["ns-prod-m"]
	delete(b.connector.host.domains, "ns-prod-m")
	lm, _ := b.reconcile()
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.DomainMissingReason))
	b.connector.host.domains["ns-prod-m"] = lost
	lm, _ = b.reconcile()
	b.Expect(conditions.GetReason(lm, infrav1.MachineReadyCondition)).To(Equal(infrav1.RunningReason))

	b.connector.err = link(hostconn.Unreachable)
	lm, _ = b.reconcile()
	b.Expect(conditions.GetReason(lm, infrav1.DomainRunningCondition)).To(Equal(infrav1.StateUnknownReason))
	b.connector.err = nil
	lm, _ = b.reconcile()
	b.Expect(conditions.GetReason(lm, infrav1.DomainRunningCondition)).To(Equal(infrav1.RunningReason))
}

// testedElsewhere says where the recovery from a reason is tested that the tables above do not have, or why it has none.
var testedElsewhere = map[string]string{
	"RunningReason":                "no failure",
	"DeletingReason":               "no failure",
	"ProvisioningReason":           "no failure",
	"HostAvailableReason":          "no failure",
	"BootstrapDataAvailableReason": "no failure",
	"CleanupProceedingReason":      "no failure",
	"CloningDiskReason":            "no failure; it ends with the copy",
	"WaitingForOwnerMachineReason": "every machine of the end-to-end tests begins with it",
	"HostInUseReason":              "tested with the claim on the host",
	"HostHasLeftoversReason":       "TestAMachineLeavesItsCluster, with an abandoned machine",
	"DomainNotRunningReason":       "TestAMachineThatDiesIsNotReadyAndNotStartedAgain",
	"DomainMissingReason":          "TestADomainThatWasLostAndIsBackIsTheMachineAgain",
	"StateUnknownReason":           "TestADomainThatWasLostAndIsBackIsTheMachineAgain",
	"CleanupFailedReason":          "TestAVolumeThatCannotBeDeletedStallsTheDeletionUntilItCan",
	"BaseImageStagingReason":       "no failure; it ends with the image",
	"BaseImageStagedReason":        "no failure",
	"NodeLabelledReason":           "no reconciler sets it yet",
	"NodeNotJoinedReason":          "no reconciler sets it yet",
}

func TestEveryReasonOfAMachineHasATestOfItsRecovery(t *testing.T) {
	g := NewWithT(t)
	tested := map[string]bool{}
	for _, row := range failures {
		tested[row.want] = true
	}
	for _, row := range lacks {
		tested[row.want] = true
	}
	for _, row := range laters {
		tested[row.want] = true
	}
	for _, row := range imageFailures {
		tested[row.want] = true
	}
	source, err := os.ReadFile("../../../api/v1alpha1/libvirtmachine_conditions.go")
	g.Expect(err).NotTo(HaveOccurred())
	declared := regexp.MustCompile(`(?m)^\t(\w+Reason) += "(\w+)"$`).FindAllStringSubmatch(string(source), -1)
	g.Expect(declared).NotTo(BeEmpty())
	var missing []string
	for _, d := range declared {
		if _, elsewhere := testedElsewhere[d[1]]; !tested[d[2]] && !elsewhere {
			missing = append(missing, d[1])
		}
	}
	g.Expect(missing).To(BeEmpty(), "no test mends what these stand for; add them to a table")
}
