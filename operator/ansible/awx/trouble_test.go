// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package awx_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/ansible/awx"
	fake "github.com/caplv/caplv/test/awx"
)

func TestOneKeyIsOneJob(t *testing.T) {
	for _, bare := range []bool{false, true} {
		g := NewWithT(t)
		server := start(t)
		server.Set(func(traps *fake.Traps) { traps.NoVariablesInLists = bare })
		backend := connect(t, server)
		var refs [4]ansible.Ref
		var group sync.WaitGroup
		for i := range refs {
			group.Go(func() {
				var err error
				if refs[i], err = backend.Submit(t.Context(), request("same")); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		// An operator that has been started again knows nothing of the first launch.
		ref, err := connect(t, server).Submit(t.Context(), request("same"))
		g.Expect(err).NotTo(HaveOccurred())
		for _, other := range refs {
			g.Expect(other).To(Equal(ref))
		}
		g.Expect(server.Jobs()).To(HaveLen(1))
		finished(t, backend, ref)
		ref2, err := backend.Submit(t.Context(), request("same"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(ref2).To(Equal(ref))
	}
}

func TestALaunchWhoseAnswerIsLostIsAdopted(t *testing.T) {
	for name, fault := range map[string]fake.Fault{
		"the connection breaks": {},
		"a proxy gives up":      {Status: 504},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := start(t)
			fault.Method, fault.Path, fault.Late = "POST", "/launch/", true
			server.Set(func(traps *fake.Traps) { traps.Faults = []fake.Fault{fault} })
			backend := connect(t, server)
			_, err := backend.Submit(t.Context(), request("lost-answer"))
			refusal(t, err, ansible.Unavailable)
			ref, err := backend.Submit(t.Context(), request("lost-answer"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(server.Jobs()).To(HaveLen(1))
			g.Expect(launches(server)).To(Equal(1))
			g.Expect(finished(t, backend, ref).Phase).To(Equal(ansible.Succeeded))
		})
	}
}

func TestALaunchThatNobodyAnswersIsTriedAgainOnlyWhenItHasSettled(t *testing.T) {
	g := NewWithT(t)
	server := start(t)
	server.Set(func(traps *fake.Traps) { traps.Faults = []fake.Fault{{Method: "POST", Path: "/launch/", Status: 502}} })
	backend := connect(t, server)
	_, err := backend.Submit(t.Context(), request("settle"))
	refusal(t, err, ansible.Unavailable)
	_, err = backend.Submit(t.Context(), request("settle"))
	g.Expect(refusal(t, err, ansible.Unavailable)).To(ContainSubstring("may still begin it"))
	g.Expect(launches(server)).To(Equal(1))
	g.Eventually(func() error {
		_, err = backend.Submit(t.Context(), request("settle"))
		return err
	}).WithTimeout(10 * time.Second).WithPolling(200 * time.Millisecond).Should(Succeed())
	g.Expect(server.Jobs()).To(HaveLen(1))
}

func TestABusyAWXIsAskedAgain(t *testing.T) {
	g := NewWithT(t)
	server := start(t)
	server.Set(func(traps *fake.Traps) {
		traps.Faults = []fake.Fault{
			{Method: "GET", Path: "/job_templates/", Status: 503, RetryAfter: 1}, {Method: "GET", Path: "/jobs/", Status: 500}, {Method: "POST", Path: "/launch/", Status: 429, RetryAfter: 1},
		}
	})
	backend := connect(t, server)
	begin := time.Now()
	ref, err := backend.Submit(t.Context(), request("busy"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(time.Since(begin)).To(BeNumerically(">", 2*time.Second))
	g.Expect(server.Jobs()).To(HaveLen(1))
	finished(t, backend, ref)

	server.Set(func(traps *fake.Traps) {
		traps.Faults = []fake.Fault{{Method: "GET", Path: "/jobs/", Status: 503, Times: 100}}
	})
	_, err = backend.Status(t.Context(), ref)
	refusal(t, err, ansible.Unavailable)
	server.Set(func(traps *fake.Traps) {
		traps.Faults = []fake.Fault{{Method: "GET", Path: "/jobs/", Status: 429, Times: 100}}
	})
	_, err = backend.Status(t.Context(), ref)
	refusal(t, err, ansible.Overloaded)
}

func TestWhoMayNotIsTold(t *testing.T) {
	g := NewWithT(t)
	server := start(t)
	as := func(token string) *awx.Backend { return connect(t, server, func(c *awx.Config) { c.Token = token }) }

	_, err := as("wrong").Submit(t.Context(), request("wrong"))
	g.Expect(refusal(t, err, ansible.Unauthorized)).To(And(ContainSubstring("does not accept the token"), ContainSubstring(template)))

	service := as(server.AddUser("caplv"))
	_, err = service.Submit(t.Context(), request("stranger"))
	g.Expect(refusal(t, err, ansible.Rejected)).To(ContainSubstring("role Execute"))

	server.Grant("caplv", "read_role", template)
	_, err = service.Submit(t.Context(), request("reader"))
	g.Expect(refusal(t, err, ansible.Unauthorized)).To(ContainSubstring("role Execute"))
	g.Expect(launches(server)).To(BeZero())

	server.Set(func(traps *fake.Traps) { traps.Faults = []fake.Fault{{Method: "POST", Path: "/launch/", Status: 403}} })
	_, err = connect(t, server).Submit(t.Context(), request("forbidden"))
	g.Expect(refusal(t, err, ansible.Unauthorized)).To(And(ContainSubstring("lacks a right"), ContainSubstring("execute the job template")))

	server.Grant("caplv", "execute_role", template)
	ref, err := service.Submit(t.Context(), request("service"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(finished(t, service, ref).Phase).To(Equal(ansible.Succeeded))
}

func TestBothPrefixesOfTheAPI(t *testing.T) {
	g := NewWithT(t)
	server := start(t)
	backend := connect(t, server, func(c *awx.Config) { c.APIPrefix = awx.PlatformAPIPrefix })
	version, err := backend.Ping(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(version).To(Equal("24.6.1"))
	ref, err := backend.Submit(t.Context(), request("platform"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(finished(t, backend, ref).Phase).To(Equal(ansible.Succeeded))

	_, err = connect(t, server, func(c *awx.Config) { c.APIPrefix = "/api/v1" }).Ping(t.Context())
	g.Expect(refusal(t, err, ansible.Rejected)).To(ContainSubstring(awx.PlatformAPIPrefix))
}

func TestTheTokenGoesNowhereElse(t *testing.T) {
	g := NewWithT(t)
	server := start(t)
	var seen []string
	other := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = append(seen, r.Header.Get("Authorization")) }))
	defer other.Close()
	server.Set(func(traps *fake.Traps) { traps.Redirect = other.URL })
	_, err := connect(t, server).Submit(t.Context(), request("redirect"))
	g.Expect(refusal(t, err, ansible.Unavailable)).To(ContainSubstring("redirects to " + other.URL))
	g.Expect(seen).To(BeEmpty())
	g.Expect(server.Requests()).To(HaveLen(1))

	server.Set(func(traps *fake.Traps) { traps.Redirect = "" })
	_, err = connect(t, server, func(c *awx.Config) { c.CA = nil }).Submit(t.Context(), request("ca"))
	g.Expect(refusal(t, err, ansible.Unavailable)).To(ContainSubstring("ca.crt"))

	// In no error either.
	for _, config := range []awx.Config{
		{URL: "https://127.0.0.1:1", Token: "very-secret"}, {URL: server.URL, Token: "very-secret", CA: server.CA}, {URL: "http://awx", Token: "very-secret"},
		{URL: "https://u:very-secret@awx", Token: "x"}, {URL: server.URL, Token: "very-secret\nX: y"}, {URL: server.URL, Token: "very-secret", CA: []byte("none")},
		{URL: server.URL, Token: "very-secret", APIPrefix: "api/v2?"},
	} {
		backend, err := awx.New(config)
		if err == nil {
			_, err = backend.Submit(t.Context(), request("token"))
		}
		g.Expect(err).To(HaveOccurred())
		g.Expect(err.Error()).NotTo(ContainSubstring("very-secret"))
	}
}

func TestWhatIsNotAWXIsToldSo(t *testing.T) {
	for name, row := range map[string]struct {
		fault  fake.Fault
		reason ansible.Reason
		says   string
	}{
		"a login page":          {fake.Fault{Status: 200, Body: "<html>"}, ansible.Rejected, "not AWX's API"},
		"an answer without end": {fake.Fault{Status: 200, Body: `{"x":"` + strings.Repeat("x", 17<<20)}, ansible.Unavailable, "larger than 16 MiB"},
		"no such path":          {fake.Fault{Status: 404}, ansible.Rejected, "prefix of the API"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := start(t)
			row.fault.Method, row.fault.Path = "GET", "/job_templates/"
			server.Set(func(traps *fake.Traps) { traps.Faults = []fake.Fault{row.fault} })
			_, err := connect(t, server).Submit(t.Context(), request("other"))
			g.Expect(refusal(t, err, row.reason)).To(ContainSubstring(row.says))
		})
	}
}

func TestARunIsNoSuccessBeforeItsEventsAreStored(t *testing.T) {
	g := NewWithT(t)
	server := start(t)
	server.Set(func(traps *fake.Traps) { traps.EventLag = 2 * time.Second })
	backend := connect(t, server)
	ref, err := backend.Submit(t.Context(), request("stored"))
	g.Expect(err).NotTo(HaveOccurred())
	waited := false
	g.Eventually(func(g Gomega) {
		status, err := backend.Status(t.Context(), ref)
		g.Expect(err).NotTo(HaveOccurred())
		ended := server.Jobs()[0]["status"] == "successful"
		waited = waited || ended && status.Phase == ansible.Running && strings.Contains(status.Message, "storing")
		g.Expect(status.Phase).To(Equal(ansible.Succeeded))
		g.Expect(status.Hosts["one.site"].OK).To(BeNumerically(">", 2))
	}).WithTimeout(60 * time.Second).WithPolling(100 * time.Millisecond).Should(Succeed())
	g.Expect(waited).To(BeTrue())
}

func TestAQueuedRunSaysSo(t *testing.T) {
	g := NewWithT(t)
	server := start(t)
	backend := connect(t, server)
	first, err := backend.Submit(t.Context(), request("first", with("seconds", 300)))
	g.Expect(err).NotTo(HaveOccurred())
	// Launched while it was allowed, and then somebody unticks the box.
	server.OnRequest(func(method, path string) {
		if method == "POST" && strings.HasSuffix(path, "/launch/") {
			server.Change(template, map[string]any{"allow_simultaneous": false})
		}
	})
	second, err := backend.Submit(t.Context(), request("second"))
	g.Expect(err).NotTo(HaveOccurred())
	status, err := backend.Status(t.Context(), second)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status.Phase).To(Equal(ansible.Queued))
	g.Expect(status.Message).To(ContainSubstring("waits in AWX"))
	g.Expect(backend.Cancel(t.Context(), first)).To(Succeed())
	g.Expect(finished(t, backend, second).Phase).To(Equal(ansible.Succeeded))
}
