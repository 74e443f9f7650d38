// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/test/bench/host"
)

// bridgeHelper and bridgeACL are where Debian has them.
const (
	bridgeHelper = "/usr/lib/qemu/qemu-bridge-helper"
	bridgeACL    = "/etc/qemu/bridge.conf"
	// hideRuntime takes the account's runtime directory away, from logins as well, and showRuntime puts it back with everything
	// that is in use there. systemd has a file system of its own mounted on it.
	hideRuntime = "r=/run/user/$(id -u caplv); mkdir /run/away; mount --bind $r /run/away; umount --lazy $r; rmdir $r"
	showRuntime = "r=/run/user/$(id -u caplv); mkdir $r; mount --bind /run/away $r; umount --lazy /run/away; rmdir /run/away"
)

// newSessionWorld is a world whose LibvirtHost uses the account's own daemon, which has the guest's image in its pool.
func newSessionWorld(t *testing.T) *world {
	t.Helper()
	w := newNamespace(t)
	h, err := suite.hosts.UpSession(t.Context(), w.namespace)
	w.g.Expect(err).NotTo(HaveOccurred())
	w.useHost(h)
	w.g.Expect(h.Copy(t.Context(), suite.image, host.SessionImages+"/"+imageName)).To(Succeed())
	w.onHost("chown " + host.Account + ": " + host.SessionImages + "/" + imageName)
	_, err = h.AsAccount(t.Context(), "virsh", "-c", "qemu:///session", "pool-refresh", "default")
	w.g.Expect(err).NotTo(HaveOccurred())
	w.introduceHost(h.SessionURI())
	return w
}

// recreateSessionHost replaces the LibvirtHost, which makes the operator probe the host at once.
func (w *world) recreateSessionHost() {
	w.t.Helper()
	w.replaceHost(w.libvirtHost(w.host.SessionURI(), w.host.Fingerprint))
}

// onHost runs a shell script on the host as root and returns its output.
func (w *world) onHost(script string) string {
	w.t.Helper()
	out, err := w.host.Exec(w.t.Context(), "sh", "-euc", script)
	w.g.Expect(err).NotTo(HaveOccurred())
	return out
}

func TestASessionHostRunsMachinesAsItsAccountAndKeepsNoTrace(t *testing.T) {
	t.Parallel()
	w := newSessionWorld(t)
	w.expectHost("True/HostReady")
	for _, row := range []struct {
		machine string
		prepare func(*infrav1.LibvirtMachineSpec)
	}{
		{"in-a-pool", func(s *infrav1.LibvirtMachineSpec) { s.Domain.Firmware = infrav1.FirmwareUEFI }},
		{"on-tmpfs", ephemeral},
	} {
		lm := w.libvirtMachine(row.machine)
		row.prepare(&lm.Spec)
		w.createMachine(lm)
		lm = w.expectMachine(row.machine, infrav1.MachineReadyCondition, "True/Running")
		directory := "/run/caplv/" + lm.Status.NodeName
		w.g.Expect(w.onHost("stat -c '%U %a' " + directory + " " + directory + "/ignition.json")).To(Equal("caplv 700\ncaplv 600\n"))
		w.g.Expect(strings.Fields(w.onHost("ps -eo user=,comm= | grep qemu-system"))).To(Equal([]string{"caplv", "qemu-system-x86"}))
		w.g.Expect(w.onHost("ls /sys/class/net/br0/brif")).To(MatchRegexp(`(?m)^tap0$`))
		w.g.Expect(w.onHost("virsh -c qemu:///system list --all --name; virsh -c qemu:///system pool-list --all --name")).
			NotTo(ContainSubstring(lm.Status.NodeName), "the system daemon knows of the machine")

		report := lastLines(w.reportFrom(directory + "/serial.log"))
		w.checkConfig(lm, report["FWCFG"])
		w.deleteMachine(row.machine)
		w.expectGone(row.machine)
		w.expectListing(w.untouched)
	}
}

func TestASessionHostHasNoLibvirtNetworks(t *testing.T) {
	t.Parallel()
	w := newSessionWorld(t)
	w.expectHost("True/HostReady")
	lm := w.libvirtMachine("worker01")
	lm.Spec.Network.Type, lm.Spec.Network.Name = infrav1.NetworkTypeNetwork, "default"
	w.createMachine(lm)
	lm = w.expectMachine("worker01", infrav1.MachineReadyCondition, "False/"+infrav1.NetworkTypeUnsupportedReason)
	w.g.Expect(lm.Status.DomainUUID).To(BeEmpty(), "the operator was about to create something")
	w.expectListing(w.untouched)
	w.deleteMachine("worker01")
	w.expectGone("worker01")
}

func TestEachPieceThatSessionModeLacksIsNamedUntilItIsMended(t *testing.T) {
	t.Parallel()
	w := newSessionWorld(t)
	w.expectHost("True/HostReady")
	session := infrav1.SessionModeMisconfiguredReason
	for _, row := range []struct {
		name, remove, mend   string
		wantReason, wantText string
	}{
		{"lingering is off", "loginctl disable-linger caplv", "loginctl enable-linger caplv",
			session, "loginctl enable-linger caplv"},
		{"the runtime directory is missing", hideRuntime, showRuntime,
			session, "runtime directory: /run/user/"},
		{"the bridge helper is not setuid", "chmod u-s " + bridgeHelper, "chmod u+s " + bridgeHelper,
			session, "chmod u+s " + bridgeHelper},
		{"the ACL is missing", "mv " + bridgeACL + " /etc/away", "mv /etc/away " + bridgeACL,
			session, bridgeACL + " does not exist"},
		{"the ACL is unreadable", "chmod 600 " + bridgeACL, "chmod 644 " + bridgeACL,
			session, "cannot read " + bridgeACL},
		{"the ACL allows no bridge", "echo '# allow br0' >" + bridgeACL, "echo 'allow br0' >" + bridgeACL,
			session, "allows no bridge"},
		{"the tun device is root's", "chmod 600 /dev/net/tun", "chmod 666 /dev/net/tun",
			session, "chmod 666 /dev/net/tun"},
		{"sudo does not allow the helper", "mv /etc/sudoers.d/caplv /etc/away", "mv /etc/away /etc/sudoers.d/caplv",
			infrav1.HelperUnavailableReason, "playbooks/onboard_host.yml"},
	} {
		t.Log(row.name)
		w.onHost(row.remove)
		w.recreateSessionHost()
		lh := w.expectHost("False/" + row.wantReason)
		w.g.Expect(conditions.GetMessage(lh, infrav1.HostReadyCondition)).To(ContainSubstring(row.wantText), row.name)
		w.onHost(row.mend)
		w.expectHost("True/HostReady")
	}
}

func TestABridgeThatASessionMayNotUseIsNamedUntilItMay(t *testing.T) {
	t.Parallel()
	w := newSessionWorld(t)
	w.expectHost("True/HostReady")
	lm := w.libvirtMachine("worker01")
	lm.Spec.Network.Name = "br7"
	w.createMachine(lm)
	lm = w.expectMachine("worker01", infrav1.MachineReadyCondition, "False/"+infrav1.SessionModeMisconfiguredReason)
	w.g.Expect(conditions.GetMessage(lm, infrav1.MachineReadyCondition)).To(ContainSubstring(`add a line "allow br7" to ` + bridgeACL))

	w.onHost("echo 'allow br7' >>" + bridgeACL)
	lm = w.expectMachine("worker01", infrav1.MachineReadyCondition, "False/"+infrav1.BridgeNotFoundReason)
	w.g.Expect(conditions.GetMessage(lm, infrav1.MachineReadyCondition)).To(ContainSubstring("the host has no bridge br7"))

	w.onHost("ip link add br7 type bridge && ip link set br7 up")
	w.expectMachine("worker01", infrav1.MachineReadyCondition, "True/Running")

	// The daemon's place is away: the deletion waits, and says for what.
	// The stream of events is opened anew while the machine is not being deleted; without its place, no virsh stays.
	w.onHost(hideRuntime + "; pkill -u caplv virsh || :")
	w.deleteMachine("worker01")
	w.expectMachine("worker01", infrav1.CleanupStalledCondition, "True/"+infrav1.SessionModeMisconfiguredReason)
	// A virsh that was killed while its directory was away could not remove it.
	w.onHost("rm -rf /run/away/caplv.*; " + showRuntime)
	w.expectGone("worker01")
	w.onHost("ip link del br7; echo 'allow br0' >" + bridgeACL)
	w.expectListing(w.untouched)
}
