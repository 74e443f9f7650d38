// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package awx_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/ansible"
	"github.com/caplv/caplv/operator/ansible/awx"
)

const template = "CAPLV onboard_host"

func TestATemplateThatWouldDoSomethingElseIsRefusedBeforeTheLaunch(t *testing.T) {
	server := start(t)
	backend := connect(t, server)
	right := map[string]any{
		"ask_limit_on_launch": true, "ask_variables_on_launch": true, "ask_job_type_on_launch": true, "ask_skip_tags_on_launch": true,
		"allow_simultaneous": true, "job_slice_count": 1, "survey_enabled": false, "inventory": server.Objects("job_templates")[0]["inventory"],
	}
	for name, row := range map[string]struct {
		wrong map[string]any
		says  string
	}{
		"limit is not prompted for":        {map[string]any{"ask_limit_on_launch": false}, `beside "Limit"`},
		"variables are not prompted for":   {map[string]any{"ask_variables_on_launch": false}, `beside "Variables"`},
		"the job type is not prompted for": {map[string]any{"ask_job_type_on_launch": false}, `beside "Job type"`},
		"skip tags are not prompted for":   {map[string]any{"ask_skip_tags_on_launch": false}, `beside "Skip tags"`},
		"jobs run one at a time":           {map[string]any{"allow_simultaneous": false}, `tick "Concurrent jobs"`},
		"jobs are sliced":                  {map[string]any{"job_slice_count": 4}, `set "Job slicing" to 1`},
		"there is no inventory":            {map[string]any{"inventory": nil}, "has no inventory"},
		"the survey wants an answer": {map[string]any{"survey_enabled": true, "survey_spec": map[string]any{"spec": []any{
			map[string]any{"variable": "colour", "type": "text", "required": true},
		}}}, "requires colour"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server.Change(template, right)
			server.Change(template, row.wrong)
			server.Forget()
			_, err := backend.Submit(t.Context(), request("refused", func(r *ansible.Request) { r.SkipTags = []string{"optional"} }))
			g.Expect(refusal(t, err, ansible.Rejected)).To(And(ContainSubstring(template), ContainSubstring(row.says)))
			g.Expect(launches(server)).To(BeZero())
		})
	}
}

func TestATemplateNeedsNoPromptForWhatIsNotSent(t *testing.T) {
	g := NewWithT(t)
	server := start(t)
	server.Change(template, map[string]any{"ask_skip_tags_on_launch": false})
	backend := connect(t, server)
	ref, err := backend.Submit(t.Context(), request("no-tags"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(finished(t, backend, ref).Phase).To(Equal(ansible.Succeeded))
}

func TestATemplateIsFoundByNameAndOrganization(t *testing.T) {
	g := NewWithT(t)
	server := start(t)
	organization := server.Add("organizations", map[string]any{"name": "Other"})
	twin := server.Objects("job_templates")[0]
	delete(twin, "id")
	twin["organization"] = organization
	server.Add("job_templates", twin)

	_, err := connect(t, server).Submit(t.Context(), request("ambiguous"))
	g.Expect(refusal(t, err, ansible.Rejected)).To(ContainSubstring("say which with organization"))
	_, err = connect(t, server, func(c *awx.Config) { c.Organization = "Third" }).Submit(t.Context(), request("none"))
	g.Expect(refusal(t, err, ansible.Rejected)).To(And(ContainSubstring("configure_awx.yml"), ContainSubstring(`"Third"`)))
	_, err = connect(t, server, func(c *awx.Config) { c.TemplatePrefix = "Mine " }).Submit(t.Context(), request("prefix"))
	g.Expect(refusal(t, err, ansible.Rejected)).To(ContainSubstring(`"Mine onboard_host"`))
	g.Expect(launches(server)).To(BeZero())

	backend := connect(t, server, func(c *awx.Config) { c.Organization = "Default" })
	ref, err := backend.Submit(t.Context(), request("ours"))
	g.Expect(err).NotTo(HaveOccurred())
	finished(t, backend, ref)
}

func TestARequestIsValidated(t *testing.T) {
	server := start(t)
	backend := connect(t, server)
	host := func(change func(*ansible.Host)) func(*ansible.Request) {
		return func(r *ansible.Request) { change(&r.Hosts[0]) }
	}
	named := func(name string) func(*ansible.Request) { return host(func(h *ansible.Host) { h.Name = name }) }
	for name, row := range map[string]struct {
		change func(*ansible.Request)
		says   string
	}{
		"no host":                     {func(r *ansible.Request) { r.Hosts = nil }, "all hosts"},
		"an empty name":               {named(""), "NAME.NAMESPACE"},
		"all":                         {named("all"), "NAME.NAMESPACE"},
		"a group":                     {named("session_hosts"), "NAME.NAMESPACE"},
		"a file":                      {named("@/etc/passwd"), "NAME.NAMESPACE"},
		"a regular expression":        {named("~.*"), "NAME.NAMESPACE"},
		"a union":                     {named("one.site:two.site"), "NAME.NAMESPACE"},
		"a list":                      {named("one.site,two.site"), "NAME.NAMESPACE"},
		"an intersection":             {named("one.site&two.site"), "NAME.NAMESPACE"},
		"a negation":                  {named("!one.site"), "NAME.NAMESPACE"},
		"a wildcard":                  {named("*.site"), "NAME.NAMESPACE"},
		"a range":                     {named("one.site[0]"), "NAME.NAMESPACE"},
		"an option":                   {named("-l.site"), "NAME.NAMESPACE"},
		"a line":                      {named("one.site\ntwo.site"), "NAME.NAMESPACE"},
		"a host twice":                {func(r *ansible.Request) { r.Hosts = append(r.Hosts, r.Hosts[0]) }, "twice"},
		"no host key":                 {host(func(h *ansible.Host) { h.HostKeys = nil }), "no host key"},
		"a host key of options":       {host(func(h *ansible.Host) { h.HostKeys = []string{"ssh-ed25519 AAAA' -o ProxyCommand='id"} }), "TYPE BASE64"},
		"a host key of two lines":     {host(func(h *ansible.Host) { h.HostKeys = []string{hostKey + "\n" + hostKey} }), "TYPE BASE64"},
		"a playbook that is not ours": {func(r *ansible.Request) { r.Playbook = "../site" }, "no playbook"},
		"a key with a space":          {func(r *ansible.Request) { r.Key = "a b" }, "key of a run"},
		"no time of submission":       {func(r *ansible.Request) { r.Submitted = time.Time{} }, "since when"},
		"no deadline":                 {func(r *ansible.Request) { r.Deadline = 0 }, "deadline"},
		"a tag with a comma":          {func(r *ansible.Request) { r.SkipTags = []string{"a,b"} }, "tag"},
		"a password in a list":        {with("caplv_base_images", []any{map[string]any{"sources": []any{map[string]any{"password": "x"}}}}), "caplv_base_images[0].sources[0].password"},
		"a typed list with a token":   {with("mirrors", []map[string]string{{"token": "x"}}), "mirrors[0].token"},
		"a private key":               {with("caplv_key", "-----BEGIN OPENSSH PRIVATE KEY-----\n"), "caplv_key"},
		"a become password":           {with("ansible_become_password", "x"), "ansible_become_password"},
		"the host's own password":     {func(r *ansible.Request) { with("note", "pw")(r); r.Hosts[0].BecomePassword = "pw" }, "note"},
		"a variable that pins":        {with("ansible_ssh_extra_args", "-o StrictHostKeyChecking=no"), "ansible_ssh_extra_args"},
		"a key among the variables":   {with("caplv_run_key", "x"), "caplv_run_key"},
		"two hosts that differ": {func(r *ansible.Request) {
			r.Hosts[0].Variables = map[string]any{"caplv_mode": "session"}
			r.Hosts = append(r.Hosts, ansible.Host{Name: "two.site", Address: "127.0.0.2", HostKeys: []string{hostKey}})
		}, "a run for each"},
		"an address that is an option": {func(r *ansible.Request) {
			r.Hosts = append(r.Hosts, ansible.Host{Name: "two.site", Address: "-oProxyCommand=id", HostKeys: []string{hostKey}})
		}, "address of two.site"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := backend.Submit(t.Context(), request("invalid", row.change))
			g.Expect(refusal(t, err, ansible.Rejected)).To(ContainSubstring(row.says))
			g.Expect(server.Requests()).To(BeEmpty())
		})
	}
}

func TestSecretsOfHostsStayHere(t *testing.T) {
	g := NewWithT(t)
	server := start(t)
	backend := connect(t, server)
	ref, err := backend.Submit(t.Context(), request("secrets", with("caplv_seal_secret", false), with("caplv_private_key_file", "/run/key"), func(r *ansible.Request) {
		r.Hosts[0].PrivateKey, r.Hosts[0].BecomePassword = "-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n", "hunter2"
	}))
	g.Expect(err).NotTo(HaveOccurred())
	finished(t, backend, ref)
	for _, r := range server.Requests() {
		g.Expect(string(r.Body)).NotTo(Or(ContainSubstring("hunter2"), ContainSubstring("PRIVATE KEY-----")))
	}
}

func TestAJobThatIgnoresSomethingIsCanceled(t *testing.T) {
	g := NewWithT(t)
	server := start(t)
	backend := connect(t, server)
	// Between the look and the launch, somebody unticks a box: the server does it at the last request before the launch.
	server.OnRequest(func(method, path string) {
		if method == "POST" && strings.HasSuffix(path, "/launch/") {
			server.Change(template, map[string]any{"ask_limit_on_launch": false})
		}
	})
	_, err := backend.Submit(t.Context(), request("race", with("seconds", 300)))
	g.Expect(refusal(t, err, ansible.Rejected)).To(And(ContainSubstring("ignores limit"), ContainSubstring("canceled")))
	g.Eventually(func() any { return server.Jobs()[0]["status"] }).WithTimeout(20 * time.Second).Should(Equal("canceled"))

	// Once the template is right, the canceled job is in nobody's way.
	server.OnRequest(nil)
	server.Change(template, map[string]any{"ask_limit_on_launch": true})
	ref, err := backend.Submit(t.Context(), request("race", with("seconds", 0)))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(finished(t, backend, ref).Phase).To(Equal(ansible.Succeeded))
}

func TestAJobThatNobodyLivedToCancelIsCanceledByTheNextSubmit(t *testing.T) {
	g := NewWithT(t)
	server := start(t)
	backend := connect(t, server)
	ref, err := backend.Submit(t.Context(), request("orphan", with("seconds", 300)))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(ref.ID).NotTo(BeEmpty())
	// To the next one, the job has another limit than it asks for.
	_, err = backend.Submit(t.Context(), request("orphan", func(r *ansible.Request) { r.Hosts[0].Name = "two.site" }))
	g.Expect(refusal(t, err, ansible.Rejected)).To(ContainSubstring(`has the limit "one.site"`))
	g.Eventually(func() any { return server.Jobs()[0]["status"] }).WithTimeout(20 * time.Second).Should(Equal("canceled"))
}

func TestASlicedJobIsCanceled(t *testing.T) {
	g := NewWithT(t)
	server := start(t)
	backend := connect(t, server)
	server.OnRequest(func(method, path string) {
		if method == "POST" && strings.HasSuffix(path, "/launch/") {
			server.Change(template, map[string]any{"job_slice_count": 2})
		}
	})
	_, err := backend.Submit(t.Context(), request("sliced"))
	g.Expect(refusal(t, err, ansible.Rejected)).To(ContainSubstring("sliced"))
	job := server.Jobs()[0]
	g.Expect(job["type"]).To(Equal("workflow_job"))
	g.Expect(job["status"]).To(Equal("canceled"))
}
