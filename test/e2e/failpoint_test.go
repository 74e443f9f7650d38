// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/controller/machine"
)

// crashes runs an operator that dies at every fail point, once each, and starts it again whenever it has.
type crashes struct {
	w    *world
	file string
	// deaths are the points at which it has died.
	deaths []string
}

// newCrashes replaces the operator by one that dies. After the test, the one that lives is back.
func newCrashes(w *world) *crashes {
	c := &crashes{w: w, file: filepath.Join(w.t.TempDir(), "points")}
	w.g.Expect(suite.operator.Stop()).To(Succeed())
	w.t.Cleanup(func() {
		suite.operator.Kill()
		if err := suite.operator.Start(cleanupContext(w.t)); err != nil {
			w.t.Errorf("starting the operator after the test: %v", err)
		}
	})
	c.start()
	return c
}

func (c *crashes) points() []string {
	content, err := os.ReadFile(c.file)
	if os.IsNotExist(err) {
		return nil
	}
	c.w.g.Expect(err).NotTo(HaveOccurred())
	return strings.Fields(string(content))
}

// start starts the operator. It may die before it is ready.
func (c *crashes) start() {
	if err := suite.operator.Start(c.w.t.Context(), "CAPLV_FAILPOINT_FILE="+c.file); err != nil && len(c.points()) == len(c.deaths) {
		c.w.t.Fatalf("the operator ended, and not at a fail point: %v", err)
	}
}

// until waits until something is reached in spite of the deaths; each is a test of its own.
func (c *crashes) until(what string, reached func() bool) {
	deadline := time.Now().Add(2 * provisionTime)
	for time.Now().Before(deadline) {
		select {
		case <-suite.operator.Done():
			points := c.points()
			c.w.g.Expect(points).To(HaveLen(len(c.deaths)+1), "the operator ended, and not at a fail point; see %s", suite.operator.LogPath())
			c.deaths = points
			if !c.w.t.Run(points[len(points)-1], c.examine) {
				c.w.t.FailNow()
			}
		case <-time.After(poll / 3):
			if reached() {
				return
			}
		}
	}
	c.w.t.Fatalf("%s was not reached; the last point was %v", what, c.deaths)
}

// examine looks at the host that the dead operator has left, and starts the operator again.
func (c *crashes) examine(t *testing.T) {
	g := NewWithT(t)
	left, err := c.w.host.Exec(t.Context(), "sh", "-c", "virsh -q -c qemu:///system list --all --uuid | grep -c . ; pgrep -c qemu-system || true")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strings.Fields(left)).To(HaveEach(BeElementOf("0", "1")), "domains and QEMU processes")
	c.start()
}

// life is a machine's life in which many different steps are needed.
type life struct {
	name string
	// prepare changes the host before the operator knows of it; it returns what the host looks like in the end, when that
	// is not how it looked before.
	prepare func(*world) string
	spec    func(*infrav1.LibvirtMachineSpec)
	// joins says that the machine becomes a Node, so that its guest is shut down in the end.
	joins bool
}

var lives = []life{
	{"storage pool that is inactive, base image that libvirt has not seen", prepareUnlistedImage, func(s *infrav1.LibvirtMachineSpec) {
		s.RootDisk.StoragePool, s.RootDisk.BaseImagePool, s.RootDisk.BaseImage = "disks", "default", "unlisted.qcow2"
	}, false},
	{"tmpfs", func(*world) string { return "" }, func(s *infrav1.LibvirtMachineSpec) {
		ephemeral(s)
		s.Deletion.ShutdownGracePeriodSeconds = new(int32(5))
	}, true},
	{"full clone across pools, and a data disk", func(w *world) string {
		withDisks(w)
		return ""
	}, func(s *infrav1.LibvirtMachineSpec) {
		onDisks(s)
		s.RootDisk.CloneStrategy, s.RootDisk.Size = infrav1.CloneStrategyFullClone, resource.MustParse("2Gi")
		s.AdditionalDisks = []infrav1.AdditionalDiskSpec{{Name: "data", Size: resource.MustParse("16Mi"), StoragePool: "default"}}
	}, false},
}

// prepareUnlistedImage leaves an inactive storage pool and a base image that its pool does not list.
func prepareUnlistedImage(w *world) string {
	run := func(script string) {
		w.g.Expect(w.host.Run(w.t.Context(), "sh", "-ec", "v='virsh -q -c qemu:///system'; cd /var/lib/libvirt/images; "+script)).To(Succeed())
	}
	run("cp " + imageName + " unlisted.qcow2; $v pool-refresh default")
	run("mkdir /var/lib/libvirt/disks; $v pool-define-as disks dir --target /var/lib/libvirt/disks; $v pool-start disks")
	end := w.listing()
	run("$v pool-destroy disks; mv unlisted.qcow2 /root/; $v pool-refresh default; mv /root/unlisted.qcow2 .")
	return end
}

// TestAnOperatorThatDiesAtEveryPointConverges kills the operator before and after every step on the host and every write
// to the API server.
func TestAnOperatorThatDiesAtEveryPointConverges(t *testing.T) {
	passed := map[string]bool{}
	for _, l := range lives {
		t.Run(l.name, func(t *testing.T) {
			end := ""
			w := newWorld(t, func(w *world) { end = l.prepare(w) })
			if end == "" {
				end = w.untouched
			}
			w.expectHost("True/HostReady")
			c := newCrashes(w)
			lm := w.libvirtMachine("worker01")
			l.spec(&lm.Spec)
			w.createMachine(lm)
			key := client.ObjectKeyFromObject(lm)
			uuids := map[string]bool{}
			c.until("Ready", func() bool {
				lm := &infrav1.LibvirtMachine{}
				w.g.Expect(suite.cp.Client().Get(t.Context(), key, lm)).To(Succeed())
				uuids[lm.Status.DomainUUID] = true
				return condition(lm, infrav1.MachineReadyCondition) == "True/Running"
			})
			delete(uuids, "")
			w.g.Expect(uuids).To(HaveLen(1), "a machine keeps its identity")
			uuid, err := w.host.Exec(t.Context(), "virsh", "-c", "qemu:///system", "list", "--uuid")
			w.g.Expect(err).NotTo(HaveOccurred())
			w.g.Expect(uuids).To(HaveKey(strings.TrimSpace(uuid)))

			if l.joins {
				w.join("worker01")
			}
			w.deleteMachine("worker01")
			c.until("the last point of the deletion", func() bool {
				for _, o := range []client.Object{&infrav1.LibvirtMachine{}, &clusterv1.Machine{}} {
					if err := suite.cp.Client().Get(t.Context(), key, o); !apierrors.IsNotFound(err) {
						return false
					}
				}
				return slices.Contains(c.deaths, "after:RemoveFinalizer")
			})
			w.expectListing(end)
			for _, point := range c.deaths {
				passed[point] = true
			}
		})
	}
	if t.Failed() {
		return
	}
	for _, point := range machine.FailPoints() {
		if _, what, _ := strings.Cut(string(point), ":"); what == string(machine.StepResumeDomain) || what == "RecordEnded" {
			// They belong to no creation and no deletion; TestAMachineThatRanOutOfStorageIsResumedAndASuspendedOneIsNot and
			// TestAPowerCycleEndsOneRunWhereverItIsInterrupted interrupt them.
			continue
		}
		t.Run("is passed/"+string(point), func(t *testing.T) {
			NewWithT(t).Expect(passed).To(HaveKey(string(point)), "no life comes to this point; add one that needs it to lives")
		})
	}
}
