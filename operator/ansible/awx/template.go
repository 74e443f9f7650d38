// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package awx

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/caplv/caplv/operator/ansible"
)

// template is a job template, as far as a launch depends on it.
type template struct {
	ID                int    `json:"id"`
	Name              string `json:"name"`
	AskLimit          bool   `json:"ask_limit_on_launch"`
	AskVariables      bool   `json:"ask_variables_on_launch"`
	AskJobType        bool   `json:"ask_job_type_on_launch"`
	AskSkipTags       bool   `json:"ask_skip_tags_on_launch"`
	AskTimeout        bool   `json:"ask_timeout_on_launch"`
	AllowSimultaneous bool   `json:"allow_simultaneous"`
	JobSliceCount     int    `json:"job_slice_count"`
	SummaryFields     struct {
		Organization     struct{ Name string } `json:"organization"`
		UserCapabilities struct {
			Start *bool `json:"start"`
		} `json:"user_capabilities"`
	} `json:"summary_fields"`
}

// needs is what a template wants to be told at a launch.
type needs struct {
	Variables []string `json:"variables_needed_to_start"`
	Passwords []string `json:"passwords_needed_to_start"`
	Inventory bool     `json:"inventory_needed_to_start"`
}

func (b *Backend) templateName(playbook ansible.Playbook) string {
	return b.config.TemplatePrefix + string(playbook)
}

// mayExecute names the right that everything here needs.
func (b *Backend) mayExecute(playbook ansible.Playbook) string {
	return fmt.Sprintf("execute the job template %q", b.templateName(playbook))
}

// findTemplate looks the job template of a playbook up. AWX lists only what the user may see.
func (b *Backend) findTemplate(ctx context.Context, playbook ansible.Playbook) (*template, error) {
	name := b.templateName(playbook)
	query := url.Values{"name": {name}, "page_size": {"10"}}
	where := ""
	if b.config.Organization != "" {
		query.Set("organization__name", b.config.Organization)
		where = fmt.Sprintf(" in the organization %q", b.config.Organization)
	}
	var page struct {
		Count   int        `json:"count"`
		Results []template `json:"results"`
	}
	if _, err := b.client.get(ctx, "job_templates/", query, &page); err != nil {
		return nil, classify(err, b.mayExecute(playbook))
	}
	switch {
	case page.Count == 0 || len(page.Results) == 0:
		return nil, rejected("AWX shows no job template %q%s: make it with playbooks/configure_awx.yml, or give the user of the token the role Execute on it", name, where)
	case page.Count > 1:
		names := make([]string, 0, len(page.Results))
		for _, t := range page.Results {
			names = append(names, fmt.Sprintf("%q", t.SummaryFields.Organization.Name))
		}
		return nil, rejected("AWX has %d job templates %q, in the organizations %s: say which with organization", page.Count, name, strings.Join(names, ", "))
	}
	return &page.Results[0], nil
}

// check refuses a template that would do something else than what is asked for.
func (t *template) check(request *ansible.Request) error {
	prompts := []struct {
		on    bool
		box   string
		since string
	}{
		{t.AskLimit, "Limit", "the playbook would run on all hosts"},
		{t.AskVariables, "Variables", "the run would not get its variables"},
		{t.AskJobType, "Job type", "a check would change the host"},
		{t.AskSkipTags || len(request.SkipTags) == 0, "Skip tags", "tasks that are to be left out would run"},
	}
	for _, prompt := range prompts {
		if !prompt.on {
			return rejected("the job template %q does not prompt for %s on launch, so %s: tick \"Prompt on launch\" beside %q in AWX, or run playbooks/configure_awx.yml",
				t.Name, strings.ToLower(prompt.box), prompt.since, prompt.box)
		}
	}
	if !t.AllowSimultaneous {
		return rejected("the job template %q runs one job at a time, so each host would wait for all others: tick \"Concurrent jobs\" in AWX, or run playbooks/configure_awx.yml", t.Name)
	}
	if t.JobSliceCount > 1 {
		return rejected("the job template %q slices its jobs into %d: set \"Job slicing\" to 1 in AWX, since a run here is one job", t.Name, t.JobSliceCount)
	}
	if may := t.SummaryFields.UserCapabilities.Start; may != nil && !*may {
		return unauthorized("the user of the token sees the job template %q and may not start it: give the user, or a team of theirs, the role Execute on it", t.Name)
	}
	return nil
}

// checkNeeds refuses a template that waits for what no person is there to give.
func (b *Backend) checkNeeds(ctx context.Context, t *template, playbook ansible.Playbook, variables map[string]any) error {
	var needed needs
	if _, err := b.client.get(ctx, fmt.Sprintf("job_templates/%d/launch/", t.ID), nil, &needed); err != nil {
		return classify(err, b.mayExecute(playbook))
	}
	if len(needed.Passwords) > 0 {
		return rejected("the credentials of the job template %q ask for %s at each launch: store that in the credential", t.Name, strings.Join(needed.Passwords, ", "))
	}
	if needed.Inventory {
		return rejected("the job template %q has no inventory: choose the one with the LibvirtHosts", t.Name)
	}
	missing := slices.DeleteFunc(needed.Variables, func(name string) bool { _, ok := variables[name]; return ok })
	if len(missing) > 0 {
		return rejected("the survey of the job template %q requires %s: make the question optional", t.Name, strings.Join(missing, ", "))
	}
	return nil
}
