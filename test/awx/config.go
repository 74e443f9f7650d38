// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package awx

import (
	"maps"
	"net/http"
	"slices"
	"time"
)

// resources are the lists that objects can be made in, and what an object needs; its first is unique, together with the rest of uniqueIn.
var resources = map[string][]string{
	"organizations": {"name"}, "users": {"username"}, "teams": {"name", "organization"}, "roles": {"role_field"},
	"credential_types": {"name", "kind"}, "credentials": {"name", "credential_type"}, "projects": {"name", "organization"},
	"execution_environments": {"name", "image"}, "inventories": {"name", "organization"}, "inventory_sources": {"name", "inventory", "source"},
	"job_templates": {"name", "project", "playbook"}, "workflow_job_templates": {"name"},
	"workflow_job_template_nodes": {"identifier", "workflow_job_template", "unified_job_template"},
}

var resourcesWithRoles = []string{"organizations", "projects", "inventories", "credentials", "job_templates", "workflow_job_templates", "teams"}

// scopes are the fields within which names are unique.
var scopes = []string{"organization", "inventory", "workflow_job_template", "credential_type"}

func (s *Server) create(c *call) (reply, error) {
	if s.store.get("users", c.user)["is_superuser"] != true {
		return reply{}, forbiddenError("You do not have permission to perform this action.")
	}
	for _, name := range resources[c.resource] {
		if c.fields[name] == nil || c.fields[name] == "" {
			return reply{}, badRequestError{name: []string{"This field is required."}}
		}
	}
	// A job template is of the organization of its project.
	if c.resource == "job_templates" {
		c.fields["organization"] = s.store.get("projects", number(c.fields["project"]))["organization"]
	}
	unique := resources[c.resource][0]
	for _, o := range s.store.objects[c.resource] {
		same := o[unique] == c.fields[unique]
		for _, scope := range scopes {
			same = same && (o[scope] == nil && c.fields[scope] == nil || text(o[scope]) == text(c.fields[scope]))
		}
		if same {
			return reply{}, badRequestError{"__all__": []string{"An object with this " + unique + " already exists."}}
		}
	}
	o := object{}
	if err := s.change(c, o, c.fields); err != nil {
		return reply{}, err
	}
	s.store.add(c.resource, o)
	return reply{status: http.StatusCreated, body: s.render(c, o)}, nil
}

// change sets fields of an object, as far as AWX would.
func (s *Server) change(c *call, o, fields object) error {
	if s.store.get("users", c.user)["is_superuser"] != true {
		return forbiddenError("You do not have permission to perform this action.")
	}
	for name, value := range fields {
		if resource, ok := references[name]; ok && value != nil && s.store.get(resource, number(value)) == nil {
			return badRequestError{name: []string{"Invalid pk - object does not exist."}}
		}
	}
	if c.resource == "job_templates" {
		project := s.store.get("projects", number(either(fields["project"], o["project"])))
		playbook := text(either(fields["playbook"], o["playbook"]))
		if project["status"] != "successful" || !slices.Contains(s.playbookFiles(), playbook) {
			return badRequestError{"playbook": []string{"Playbook not found for project."}}
		}
	}
	before := maps.Clone(o)
	maps.Copy(o, fields)
	if c.resource == "projects" && (before["scm_url"] != o["scm_url"] || before["scm_branch"] != o["scm_branch"]) {
		// AWX fetches it, which takes a moment.
		o["status"] = "pending"
		time.AfterFunc(300*time.Millisecond, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			o["status"] = "successful"
		})
	}
	return nil
}

// references are fields with the number of another object.
var references = map[string]string{ //nolint:gosec // Names of lists.
	"organization": "organizations", "project": "projects", "source_project": "projects", "inventory": "inventories", "credential_type": "credential_types",
	"credential": "credentials", "execution_environment": "execution_environments",
}

func either(value, other any) any {
	if value != nil {
		return value
	}
	return other
}

func (s *Server) playbookFiles() []string {
	var files []string
	for _, name := range Playbooks {
		files = append(files, "playbooks/"+name+".yml")
	}
	return files
}

func (s *Server) surveyRequest(c *call, o object) (reply, error) {
	switch c.method {
	case http.MethodGet:
		spec, _ := o["survey_spec"].(map[string]any)
		return reply{status: http.StatusOK, body: object(maps.Clone(spec))}, nil
	case http.MethodPost:
		for _, name := range []string{"name", "description", "spec"} {
			if _, ok := c.fields[name]; !ok {
				return reply{}, badRequestError{"error": "'" + name + "' missing from survey spec."}
			}
		}
		o["survey_spec"] = map[string]any(c.fields)
		return reply{status: http.StatusOK, body: object{}}, nil
	}
	return reply{status: http.StatusMethodNotAllowed, body: object{}}, nil
}

// lists are those below an object, with the resource that they have objects of.
var lists = map[string]string{
	"credentials": "credentials", "users": "users", "roles": "roles", "success_nodes": "workflow_job_template_nodes", "workflow_nodes": "workflow_job_template_nodes",
	"playbooks": "",
}

// subListRequest shows a list below an object, and links and unlinks.
func (s *Server) subListRequest(c *call) (reply, error) {
	resource, known := lists[c.list]
	if !known {
		return reply{}, nil
	}
	if c.method == http.MethodPost {
		other := number(c.fields["id"])
		if s.store.get(resource, other) == nil {
			return reply{}, badRequestError{"msg": "id is required, and must be of an object"}
		}
		if c.fields["disassociate"] == true {
			s.store.unlink(c.resource, c.id, c.list, other)
		} else {
			s.store.link(c.resource, c.id, c.list, other)
		}
		return reply{status: http.StatusNoContent, body: object{}}, nil
	}
	var linked []object
	for _, id := range s.store.links[linkKey(c.resource, c.id, c.list)] {
		linked = append(linked, s.store.get(resource, id))
	}
	return reply{paged: true, list: linked}, nil
}

// Objects are all objects of a list, for comparing.
func (s *Server) Objects(resource string) []map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []map[string]any
	for _, o := range s.store.objects[resource] {
		all = append(all, maps.Clone(o))
	}
	return all
}

// Linked are the numbers of the objects in a list below another, such as the credentials of a job template.
func (s *Server) Linked(resource string, id int, list string) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.store.links[linkKey(resource, id, list)])
}
