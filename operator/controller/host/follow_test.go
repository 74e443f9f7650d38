// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/ansible/ansibletest"
	"github.com/caplv/caplv/operator/job"
)

// countingQueue counts how often the reconciler is woken.
type countingQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	woken chan struct{}
}

func (q countingQueue) Add(reconcile.Request) { q.woken <- struct{}{} }

func TestARunWithManyTasksWakesTheReconcilerSeldom(t *testing.T) {
	g := NewWithT(t)
	jobs := job.New(t.Context())
	queue := countingQueue{
		workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()), make(chan struct{}, 1000),
	}
	g.Expect(jobs.Source().Start(t.Context(), queue)).To(Succeed())
	f := newFollower(jobs)
	f.interval = 300 * time.Millisecond
	backend := ansibletest.New()
	pair := newPair(t)
	ref, err := backend.Submit(t.Context(), ansible.Request{
		Key: "k", Playbook: ansible.OnboardHost, Deadline: time.Hour, Submitted: time.Now(), Variables: map[string]any{}, Hosts: []ansible.Host{{
			Name: hostName, Address: "b", Port: 22, User: "root", PrivateKey: string(pair.Private), HostKeys: []string{strings.Join(strings.Fields(string(pair.Public))[:2], " ")},
		}},
	})
	g.Expect(err).NotTo(HaveOccurred())
	lh := &infrav1.LibvirtHost{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	f.look(lh, backend, ref)
	for i := range 200 {
		backend.Task(ref.Key, fmt.Sprint("task ", i), i, 200)
		time.Sleep(3 * time.Millisecond)
	}
	g.Eventually(func() int {
		said, _ := f.look(lh, backend, ref)
		return said.status.TasksDone
	}, patience).Should(Equal(199), "the newest is known")
	g.Expect(len(queue.woken)).To(BeNumerically("<=", 5))

	backend.End(ref.Key, ansible.HostResult{Phase: ansible.Succeeded})
	g.Eventually(func() bool {
		said, _ := f.look(lh, backend, ref)
		return said.status.Phase.Ended()
	}, patience).Should(BeTrue())
	g.Expect(f.forget(t.Context(), ref.Key)).To(Succeed())
	_, known := f.reports[ref.Key]
	g.Expect(known).To(BeFalse())
}
