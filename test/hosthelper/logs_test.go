// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hosthelper

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestRemoveDeletesTheDomainsLogsAndNoOthers(t *testing.T) {
	g := NewWithT(t)
	s := newSandbox(t)
	s.sh(`mount -n -t tmpfs -o mode=755 tmpfs /var/log; mkdir -p /var/log/libvirt/qemu; cd /var/log/libvirt/qemu
		touch vm.log vm.log.0 vm-serial.log vm-serial.log.1 vm2.log other.log vm-x.log vm.logs; mkdir vm.log.2; ln -s other.log vm.log.3`)
	g.Expect(s.send(request("remove", "name=vm"))).To(Equal(result{Stdout: "removed=absent\n"}))
	g.Expect(s.sh("ls /var/log/libvirt/qemu")).To(Equal("other.log\nvm-x.log\nvm.log.2\nvm.log.3\nvm.logs\nvm2.log\n"))
}

func TestLogsOfADirectoryThatIsNotRootsAreLeftAlone(t *testing.T) {
	g := NewWithT(t)
	s := newSandbox(t)
	s.sh(`mount -n -t tmpfs -o mode=755 tmpfs /var/log; mkdir -p /var/log/elsewhere /var/log/libvirt; touch /var/log/elsewhere/vm.log
		ln -s /var/log/elsewhere /var/log/libvirt/qemu`)
	g.Expect(s.send(request("remove", "name=vm"))).To(Equal(result{Stdout: "removed=absent\n"}))
	g.Expect(s.sh("ls /var/log/elsewhere")).To(Equal("vm.log\n"))
}
