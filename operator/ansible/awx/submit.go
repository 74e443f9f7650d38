// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package awx

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caplv/caplv/operator/ansible"
)

const (
	// clockSkew is how far AWX's clock may be from ours.
	clockSkew = 10 * time.Minute
	// maxPages bounds how many pages of 200 are gone through.
	maxPages = 50
)

// launched is the answer to a launch. A sliced job is a workflow.
type launched struct {
	Job           int            `json:"job"`
	WorkflowJob   int            `json:"workflow_job"`
	IgnoredFields map[string]any `json:"ignored_fields"`
}

// Submit launches the job template of the request's playbook, unless a job with the request's key has been launched since request.Submitted:
// AWX itself would launch a second one. Errors with the reason Rejected say what to change, most often a box to tick in the job template.
//
// PrivateKey and BecomePassword of hosts are not sent, nor is User: the template's machine credential has them.
func (b *Backend) Submit(ctx context.Context, request ansible.Request) (ansible.Ref, error) {
	ref, err, _ := b.flights.Do(request.Key, func() (any, error) { return b.submit(ctx, &request) })
	if err != nil {
		return ansible.Ref{}, classify(err, b.mayExecute(request.Playbook))
	}
	return ref.(ansible.Ref), nil //nolint:errcheck // submit returns nothing else.
}

func (b *Backend) submit(ctx context.Context, request *ansible.Request) (ansible.Ref, error) {
	if err := checkRequest(request); err != nil {
		return ansible.Ref{}, err
	}
	limit, err := limitOf(request.Hosts)
	if err != nil {
		return ansible.Ref{}, err
	}
	variables, err := variablesOf(request)
	if err != nil {
		return ansible.Ref{}, err
	}
	t, err := b.findTemplate(ctx, request.Playbook)
	if err != nil {
		return ansible.Ref{}, err
	}
	// Before the template is judged: what has been launched is there, whatever has become of the template.
	if ref, err := b.adopt(ctx, t, request, limit); err != nil || ref.ID != "" {
		return ref, err
	}
	if err := b.waitForDoubtful(request.Key); err != nil {
		return ansible.Ref{}, err
	}
	if err := t.check(request); err != nil {
		return ansible.Ref{}, err
	}
	if err := b.checkNeeds(ctx, t, request.Playbook, variables); err != nil {
		return ansible.Ref{}, err
	}
	return b.launch(ctx, t, request, limit, variables)
}

func checkRequest(request *ansible.Request) error {
	if !keyPattern.MatchString(request.Key) {
		return rejected("the key of a run consists of letters, digits, \"-\", \".\" and \"_\", at most 128")
	}
	if !slices.Contains(ansible.Playbooks, request.Playbook) {
		return rejected("there is no playbook %q", line(string(request.Playbook), 64))
	}
	if request.Submitted.IsZero() {
		return rejected("a run in AWX needs the time since when it may have been launched already")
	}
	if request.Deadline < time.Second {
		return rejected("a run needs a deadline of at least a second")
	}
	for _, tag := range request.SkipTags {
		if !tagPattern.MatchString(tag) {
			return rejected("the tag %q to skip must consist of letters, digits, \"_\", \".\" and \"-\"", line(tag, 64))
		}
	}
	return nil
}

// adopt looks for the job that an earlier attempt has launched. AWX cannot search in variables.
func (b *Backend) adopt(ctx context.Context, t *template, request *ansible.Request, limit string) (ansible.Ref, error) {
	query := url.Values{
		"job_template": {strconv.Itoa(t.ID)},
		"created__gte": {request.Submitted.Add(-clockSkew).UTC().Format(time.RFC3339)},
		"order_by":     {"id"},
	}
	found, err := find(ctx, b.client, "jobs/", query, func(j *job) (bool, error) {
		if j.ExtraVars == "" {
			if _, err := b.client.get(ctx, fmt.Sprintf("jobs/%d/", j.ID), nil, j); err != nil {
				return false, err
			}
		}
		if j.variables().Key != request.Key {
			return false, nil
		}
		// One that was launched wrongly and has been canceled for it is no run, and stands in nobody's way once the template is right.
		return j.isFor(request, limit) || !j.ended(), nil
	})
	if err != nil || found == nil {
		return ansible.Ref{}, err
	}
	b.forgetDoubtful(request.Key)
	ref := ansible.Ref{Key: request.Key, ID: strconv.Itoa(found.ID)}
	if !found.isFor(request, limit) {
		// Who launched it has not lived to cancel it.
		return ansible.Ref{}, b.refuseLaunched(ctx, fmt.Sprintf("jobs/%d/", found.ID), t.Name,
			fmt.Sprintf("job %s has the limit %q and the type %q", ref.ID, line(found.Limit, 128), found.JobType))
	}
	return ref, nil
}

func (j *job) isFor(request *ansible.Request, limit string) bool {
	return j.Limit == limit && j.JobType == jobType(request)
}

func jobType(request *ansible.Request) string {
	if request.Check {
		return "check"
	}
	return "run"
}

func (b *Backend) launch(ctx context.Context, t *template, request *ansible.Request, limit string, variables map[string]any) (ansible.Ref, error) {
	body := map[string]any{"limit": limit, "extra_vars": variables, "job_type": jobType(request)}
	if len(request.SkipTags) > 0 {
		body["skip_tags"] = strings.Join(request.SkipTags, ",")
	}
	if t.AskTimeout {
		body["timeout"] = int(request.Deadline.Seconds())
	}
	var done launched
	err := b.client.post(ctx, fmt.Sprintf("job_templates/%d/launch/", t.ID), body, &done, false)
	switch {
	case err == nil:
	case is(err, 400):
		return ansible.Ref{}, rejected("AWX refuses to launch the job template %q: %v", t.Name, err)
	case is(err, 405):
		return ansible.Ref{}, rejected("AWX cannot launch the job template %q, whose project or inventory is missing: %v", t.Name, err)
	default:
		if mayHaveLaunched(err) {
			b.rememberDoubtful(request.Key)
		}
		return ansible.Ref{}, err
	}
	switch {
	case done.WorkflowJob != 0:
		return ansible.Ref{}, b.refuseLaunched(ctx, fmt.Sprintf("workflow_jobs/%d/", done.WorkflowJob), t.Name, "AWX has sliced the run into a workflow")
	case done.Job == 0:
		b.rememberDoubtful(request.Key)
		return ansible.Ref{}, errNotAWX
	case len(done.IgnoredFields) > 0:
		return ansible.Ref{}, b.refuseLaunched(ctx, fmt.Sprintf("jobs/%d/", done.Job), t.Name,
			fmt.Sprintf("job %d ignores %s, which the template does not prompt for", done.Job, strings.Join(sortedKeys(done.IgnoredFields), ", ")))
	}
	return ansible.Ref{Key: request.Key, ID: strconv.Itoa(done.Job)}, nil
}

// refuseLaunched cancels what is not the run that was asked for.
func (b *Backend) refuseLaunched(ctx context.Context, path, name, why string) error {
	// Also when the caller has given up: it may be running on hosts that nobody has named.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.config.Timeout)
	defer cancel()
	if err := b.cancel(ctx, path); err != nil {
		return rejected("%s, and it could not be canceled (%v): cancel it in AWX now, and run playbooks/configure_awx.yml for the job template %q", why, err, name)
	}
	return rejected("%s, so it has been canceled: run playbooks/configure_awx.yml for the job template %q", why, name)
}

// mayHaveLaunched says whether AWX may have begun a job although the launch failed.
func mayHaveLaunched(err error) bool {
	if neverSent(err) || isRedirectRefused(err) {
		return false
	}
	return !isStatus(err) || is(err, 500) || is(err, 502) || is(err, 503) || is(err, 504)
}

func (b *Backend) rememberDoubtful(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.doubtful[key] = b.now()
}

func (b *Backend) forgetDoubtful(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.doubtful, key)
}

// waitForDoubtful refuses to launch again what AWX may be about to begin: a job is in the list only when its launch is through.
func (b *Backend) waitForDoubtful(key string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	since, ok := b.doubtful[key]
	if !ok {
		return nil
	}
	if left := b.config.Settle - b.now().Sub(since); left > 0 {
		return unavailable("AWX has not answered the launch of this run, and may still begin it; asking again in %s", left.Round(time.Second))
	}
	delete(b.doubtful, key)
	return nil
}

// find goes through the pages of a list until match is true.
func find[T any](ctx context.Context, c *client, path string, query url.Values, match func(*T) (bool, error)) (*T, error) {
	query.Set("page_size", "200")
	for number := 1; number <= maxPages; number++ {
		query.Set("page", strconv.Itoa(number))
		var page struct {
			Next    *string `json:"next"`
			Results []T     `json:"results"`
		}
		if _, err := c.get(ctx, path, query, &page); err != nil {
			return nil, err
		}
		for i := range page.Results {
			if ok, err := match(&page.Results[i]); err != nil || ok {
				return &page.Results[i], err
			}
		}
		if page.Next == nil || *page.Next == "" {
			return nil, nil
		}
	}
	return nil, unavailable("AWX's list %s has more than %d entries", path, maxPages*200)
}

func sortedKeys(fields map[string]any) []string { return slices.Sorted(maps.Keys(fields)) }
