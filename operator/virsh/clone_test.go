// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package virsh

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// slowCopies puts a qemu-img into the daemon's path that does not begin a copy before the file of the returned name exists. A
// copy outlives its daemon; it does not outlive the test.
func slowCopies(t *testing.T) (goAhead string) {
	t.Helper()
	g := NewWithT(t)
	program, err := exec.LookPath("qemu-img")
	g.Expect(err).NotTo(HaveOccurred(), "this test needs qemu-img: install the Debian package qemu-utils")
	bin := t.TempDir()
	goAhead = filepath.Join(bin, "go-ahead")
	wrapper := fmt.Sprintf("#!/bin/sh\nif [ \"$1\" = convert ]; then while [ -d %s ] && [ ! -e %s ]; do sleep 0.05; done; fi\nexec %s \"$@\"\n", bin, goAhead, program)
	g.Expect(os.WriteFile(filepath.Join(bin, "qemu-img"), []byte(wrapper), 0o755)).To(Succeed())
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	return goAhead
}

// poolOf defines and starts a pool over a directory of its own.
func (d *daemon) poolOf(t *testing.T, s *Shell, name string) (dir string) {
	t.Helper()
	g := NewWithT(t)
	dir = filepath.Join(d.dir, name)
	g.Expect(os.Mkdir(dir, 0o711)).To(Succeed())
	g.Expect(s.DefinePool(t.Context(), "<pool type='dir'><name>"+name+"</name><target><path>"+dir+"</path></target></pool>")).To(Succeed())
	g.Expect(s.StartPool(t.Context(), name)).To(Succeed())
	return dir
}

const copyXML = `<volume><name>root.qcow2</name><capacity unit='bytes'>4194304</capacity><allocation unit='bytes'>0</allocation>` +
	`<target><format type='qcow2'/><compat>1.1</compat></target></volume>`

var copied = Query{Domain: "m1", Pools: []string{"fast"}, Volumes: []VolumeRef{{"fast", "root.qcow2"}}}

// TestACopyAcrossPools has a real storage driver.
func TestACopyAcrossPools(t *testing.T) {
	g := NewWithT(t)
	goAhead := slowCopies(t)
	d := startDaemon(t)
	s, other := d.clientOf(t, d.storageURI()), d.clientOf(t, d.storageURI())
	d.poolOf(t, s, "images")
	d.poolOf(t, s, "fast")
	g.Expect(s.CreateVolume(t.Context(), "images", volumeXML)).To(Succeed())

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.CloneVolume(ctx, "fast", copyXML, "images", "v1.qcow2") }()
	g.Eventually(func() (map[VolumeRef]string, error) {
		obs, err := other.Observe(t.Context(), copied)
		return obs.Volumes, err
	}, 20*time.Second, 50*time.Millisecond).Should(HaveLen(1), "a copy is listed from its beginning")
	cancel()
	g.Eventually(ended, 10*time.Second).Should(Receive(MatchError(context.Canceled)))

	// The daemon goes on by itself, and guards both volumes and both pools.
	for name, err := range map[string]error{
		"the copy is deleted":       other.DeleteVolume(t.Context(), "fast", "root.qcow2"),
		"the copy is resized":       other.ResizeVolume(t.Context(), "fast", "root.qcow2", 8<<20),
		"the original is deleted":   other.DeleteVolume(t.Context(), "images", "v1.qcow2"),
		"the copy's pool refreshed": other.RefreshPool(t.Context(), "fast"),
		"the copy's pool destroyed": other.DestroyPool(t.Context(), "fast"),
	} {
		g.Expect(ReasonOf(err)).To(Equal(VolumeBusy), "%s: %v", name, err)
	}
	g.Expect(ReasonOf(other.CloneVolume(t.Context(), "fast", copyXML, "images", "v1.qcow2"))).To(Equal(VolumeExists))
	g.Expect(os.WriteFile(goAhead, nil, 0o600)).To(Succeed())
	g.Eventually(func() error { return other.DeleteVolume(t.Context(), "fast", "root.qcow2") }, 20*time.Second, 50*time.Millisecond).Should(Succeed())

	g.Expect(s.CloneVolume(t.Context(), "fast", copyXML, "images", "v1.qcow2")).To(Succeed())
	size := func() string {
		obs, err := s.Observe(t.Context(), copied)
		g.Expect(err).NotTo(HaveOccurred())
		return obs.Volumes[VolumeRef{"fast", "root.qcow2"}]
	}
	g.Expect(size()).To(ContainSubstring("<capacity unit='bytes'>1048576</capacity>"), "a copy has its original's size")
	g.Expect(s.ResizeVolume(t.Context(), "fast", "root.qcow2", 4<<20)).To(Succeed())
	g.Expect(s.ResizeVolume(t.Context(), "fast", "root.qcow2", 4<<20)).To(Succeed(), "a volume that has the size")
	g.Expect(s.ResizeVolume(t.Context(), "fast", "root.qcow2", 1<<20)).To(MatchError(ContainSubstring("shrink")))
	g.Expect(size()).To(ContainSubstring("<capacity unit='bytes'>4194304</capacity>"))
	g.Expect(ReasonOf(s.CloneVolume(t.Context(), "fast", copyXML, "images", "none"))).To(Equal(VolumeNotFound))
	g.Expect(ReasonOf(s.CloneVolume(t.Context(), "fast", copyXML, "none", "v1.qcow2"))).To(Equal(PoolNotFound))
}

func TestACopyWhoseDaemonDiesLooksLikeAVolumeAndCanBeDeleted(t *testing.T) {
	g := NewWithT(t)
	slowCopies(t)
	d := startDaemon(t)
	s := d.clientOf(t, d.storageURI())
	d.poolOf(t, s, "images")
	dir := d.poolOf(t, s, "fast")
	g.Expect(s.CreateVolume(t.Context(), "images", volumeXML)).To(Succeed())
	ended := make(chan error, 1)
	go func() { ended <- s.CloneVolume(t.Context(), "fast", copyXML, "images", "v1.qcow2") }()
	other := d.clientOf(t, d.storageURI())
	g.Eventually(func() (map[VolumeRef]string, error) {
		obs, err := other.Observe(t.Context(), copied)
		return obs.Volumes, err
	}, 20*time.Second, 50*time.Millisecond).Should(HaveLen(1))
	d.signal(t, syscall.SIGKILL)
	var err error
	g.Eventually(ended, 10*time.Second).Should(Receive(&err))
	g.Expect(ReasonOf(err)).To(Equal(LibvirtUnavailable), "%v", err)

	// A part of a copy, which the interrupted qemu-img would have left.
	g.Expect(os.WriteFile(filepath.Join(dir, "root.qcow2"), make([]byte, 4096), 0o600)).To(Succeed())
	d.run(t)
	other = d.clientOf(t, d.storageURI())
	g.Expect(other.DefinePool(t.Context(), "<pool type='dir'><name>fast</name><target><path>"+dir+"</path></target></pool>")).To(Succeed())
	g.Expect(other.StartPool(t.Context(), "fast")).To(Succeed())
	obs, err := other.Observe(t.Context(), copied)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(obs.Volumes).To(HaveLen(1), "nothing distinguishes it from a volume")
	g.Expect(other.DeleteVolume(t.Context(), "fast", "root.qcow2")).To(Succeed())
}
