// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package awx

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// prompts are the fields of a launch, and the fields of the template that let them through.
var prompts = map[string]string{ //nolint:gosec // Names of fields.
	"limit": "ask_limit_on_launch", "job_type": "ask_job_type_on_launch", "skip_tags": "ask_skip_tags_on_launch", "job_tags": "ask_tags_on_launch",
	"timeout": "ask_timeout_on_launch", "inventory": "ask_inventory_on_launch", "credentials": "ask_credential_on_launch",
	"diff_mode": "ask_diff_mode_on_launch", "verbosity": "ask_verbosity_on_launch", "job_slice_count": "ask_job_slice_count_on_launch",
}

func (s *Server) launchRequest(c *call, t object) (reply, error) {
	switch c.method {
	case http.MethodGet:
		return reply{status: http.StatusOK, body: s.launchNeeds(t)}, nil
	case http.MethodPost:
		return s.launch(c, t)
	}
	return reply{status: http.StatusMethodNotAllowed, body: object{"detail": "Method not allowed."}}, nil
}

// launchNeeds is what AWX says of a launch before it.
func (s *Server) launchNeeds(t object) object {
	required := []string{}
	for _, question := range questions(t) {
		if question["required"] == true {
			required = append(required, text(question["variable"]))
		}
	}
	passwords := []string{}
	for _, id := range s.store.links[linkKey("job_templates", t.id(), "credentials")] {
		inputs, _ := s.store.get("credentials", id)["inputs"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(inputs)) {
			if inputs[name] == "ASK" {
				passwords = append(passwords, name)
			}
		}
	}
	body := object{
		"variables_needed_to_start": required, "passwords_needed_to_start": passwords, "inventory_needed_to_start": t["inventory"] == nil,
		"survey_enabled": t["survey_enabled"],
	}
	for _, ask := range prompts {
		body[ask] = t[ask]
	}
	return body
}

// launch does what AWX does: what the template does not prompt for is ignored.
func (s *Server) launch(c *call, t object) (reply, error) {
	if !s.store.allows(c.user, "job_templates", t.id(), "admin_role", "execute_role") {
		return reply{}, forbiddenError("You do not have permission to perform this action.")
	}
	if s.store.get("projects", number(t["project"])) == nil {
		return reply{status: http.StatusMethodNotAllowed, body: object{"detail": "Job cannot be launched: its project is missing."}}, nil
	}
	if t["inventory"] == nil && c.fields["inventory"] == nil {
		return reply{}, badRequestError{"inventory": []string{"A value is required."}}
	}
	job := maps.Clone(t)
	ignored := object{}
	for name, value := range c.fields {
		ask, known := prompts[name]
		switch {
		case value == nil:
			return reply{}, badRequestError{name: []string{"This field may not be null."}}
		case name == "extra_vars":
		case !known || t[ask] != true:
			ignored[name] = value
		case name == "job_type" && value != "run" && value != "check":
			return reply{}, badRequestError{name: []string{fmt.Sprintf("%q is not a valid choice.", value)}}
		default:
			job[name] = value
		}
	}
	given, err := variablesOf(c.fields["extra_vars"])
	if err != nil {
		return reply{}, badRequestError{"extra_vars": []string{"Cannot parse as JSON or YAML."}}
	}
	accepted, rejected, problems := accept(t, given)
	if len(problems) > 0 {
		return reply{}, badRequestError{"variables_needed_to_start": problems}
	}
	if len(rejected) > 0 {
		ignored["extra_vars"] = rejected
	}
	if number(job["job_slice_count"]) > 1 {
		workflow := s.newJob(c, t, job, accepted)
		workflow.workflow = true
		return reply{status: http.StatusCreated, body: object{"workflow_job": workflow.id, "id": workflow.id, "type": "workflow_job", "ignored_fields": ignored}}, nil
	}
	started := s.newJob(c, t, job, accepted)
	s.running.Go(func() { s.run(started) })
	body := s.renderJob(started, true)
	body["job"] = started.id
	body["ignored_fields"] = ignored
	return reply{status: http.StatusCreated, body: body}, nil
}

// variablesOf are variables as AWX takes them: an object, or a text of JSON or YAML.
func variablesOf(value any) (map[string]any, error) {
	variables := map[string]any{}
	switch v := value.(type) {
	case map[string]any:
		return v, nil
	case string:
		if err := yaml.Unmarshal([]byte(v), &variables); err != nil {
			return nil, err
		}
	}
	return variables, nil
}

func questions(t object) []map[string]any {
	if t["survey_enabled"] != true {
		return nil
	}
	spec, _ := t["survey_spec"].(map[string]any)
	list, _ := spec["spec"].([]any)
	var found []map[string]any
	for _, entry := range list {
		if question, ok := entry.(map[string]any); ok {
			found = append(found, question)
		}
	}
	return found
}

// accept sorts variables of a launch into those that the survey or the prompt lets through and those that are ignored, and checks answers.
func accept(t object, given map[string]any) (accepted, rejected map[string]any, problems []string) {
	accepted, rejected = map[string]any{}, map[string]any{}
	rest := maps.Clone(given)
	for _, question := range questions(t) {
		name := text(question["variable"])
		value, answered := given[name]
		delete(rest, name)
		if !answered {
			if question["required"] == true {
				problems = append(problems, fmt.Sprintf("'%s' value missing", name))
			}
			continue
		}
		if problem := checkAnswer(question, value); problem != "" {
			problems = append(problems, problem)
			continue
		}
		accepted[name] = value
	}
	if t["ask_variables_on_launch"] == true {
		maps.Copy(accepted, rest)
		rest = nil
	}
	maps.Copy(rejected, rest)
	return accepted, rejected, problems
}

func checkAnswer(question map[string]any, value any) string {
	name := text(question["variable"])
	switch question["type"] {
	case "text", "textarea", "password":
		if _, ok := value.(string); !ok {
			return fmt.Sprintf("Value %v for '%s' expected to be a string.", value, name)
		}
	case "multiplechoice":
		if !slices.Contains(choices(question), text(value)) {
			return fmt.Sprintf("Value %v for '%s' expected to be one of %v.", value, name, choices(question))
		}
	case "integer":
		if _, ok := value.(int); !ok {
			return fmt.Sprintf("Value %v for '%s' expected to be an integer.", value, name)
		}
	}
	return ""
}

func choices(question map[string]any) []string {
	if list, ok := question["choices"].([]any); ok {
		var all []string
		for _, entry := range list {
			all = append(all, text(entry))
		}
		return all
	}
	return strings.Split(text(question["choices"]), "\n")
}

// newJob makes a job of a template and what a launch has changed of it. The order of variables: the template's, the survey's defaults, the launch's.
func (s *Server) newJob(c *call, t, prompted object, runtime map[string]any) *job {
	templated, err := variablesOf(t["extra_vars"])
	if err != nil {
		templated = map[string]any{}
	}
	variables := maps.Clone(templated)
	for _, question := range questions(t) {
		// An empty text is a default as well.
		if answer, ok := question["default"]; ok && answer != nil && checkAnswer(question, answer) == "" {
			variables[text(question["variable"])] = answer
		}
	}
	maps.Copy(variables, runtime)
	j := &job{
		id: s.store.number(), template: t, user: c.user, playbook: text(t["playbook"]), limit: text(prompted["limit"]), jobType: text(prompted["job_type"]),
		skipTags: text(prompted["skip_tags"]), timeout: number(prompted["timeout"]), variables: variables, trusted: templated, status: "pending", created: now(),
		canceled: make(chan struct{}),
	}
	s.jobs = append(s.jobs, j)
	return j
}

func encode(value any) string {
	content, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(content)
}
