// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package awx

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// object is one of AWX's objects: its fields as JSON has them, with numbers as int.
type object map[string]any

func (o object) id() int { return number(o["id"]) }

func number(value any) int {
	switch v := value.(type) {
	case int:
		return v
	case float64:
		return int(v)
	}
	return 0
}

// normal makes a value look as if it had been decoded from JSON, with numbers as int.
func normal(value any) any {
	content, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	var decoded any
	if err := json.Unmarshal(content, &decoded); err != nil {
		panic(err)
	}
	return whole(decoded)
}

func whole(value any) any {
	switch v := value.(type) {
	case float64:
		if v == float64(int(v)) {
			return int(v)
		}
	case []any:
		for i := range v {
			v[i] = whole(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = whole(v[name])
		}
	}
	return value
}

// store has all objects but jobs. Callers hold the server's lock.
type store struct {
	next    int
	objects map[string][]object
	// links are the numbers of objects in lists below another, by "RESOURCE/ID/LIST".
	links map[string][]int
}

func newStore() store { return store{objects: map[string][]object{}, links: map[string][]int{}} }

func (s *store) number() int { s.next++; return s.next }

func (s *store) add(resource string, o object) int {
	o["id"] = s.number()
	o["created"] = time.Now().UTC().Format(time.RFC3339Nano)
	for name, value := range defaults[resource] {
		if _, ok := o[name]; !ok {
			o[name] = value
		}
	}
	s.objects[resource] = append(s.objects[resource], o)
	return o.id()
}

func (s *store) remove(resource string) { delete(s.objects, resource) }

func (s *store) get(resource string, id int) object {
	for _, o := range s.objects[resource] {
		if o.id() == id {
			return o
		}
	}
	return nil
}

func (s *store) find(resource, field, value string) object {
	for _, o := range s.objects[resource] {
		if o[field] == value {
			return o
		}
	}
	panic(fmt.Sprintf("awx: there is no %s with %s %q", resource, field, value))
}

// role is the number of a role on an object, which exists from the moment that somebody asks for it.
func (s *store) role(resource string, id int, name string) int {
	for _, o := range s.objects["roles"] {
		if o["resource"] == resource && o["object_id"] == id && o["role_field"] == name {
			return o.id()
		}
	}
	return s.add("roles", object{"resource": resource, "object_id": id, "role_field": name})
}

func linkKey(resource string, id int, list string) string {
	return fmt.Sprintf("%s/%d/%s", resource, id, list)
}

func (s *store) link(resource string, id int, list string, other int) {
	key := linkKey(resource, id, list)
	if !slices.Contains(s.links[key], other) {
		s.links[key] = append(s.links[key], other)
	}
}

func (s *store) unlink(resource string, id int, list string, other int) {
	key := linkKey(resource, id, list)
	s.links[key] = slices.DeleteFunc(s.links[key], func(id int) bool { return id == other })
}

// allows says whether a user has a role on an object, itself or through a team.
func (s *store) allows(user int, resource string, id int, roles ...string) bool {
	if s.get("users", user)["is_superuser"] == true {
		return true
	}
	for _, name := range roles {
		role := s.role(resource, id, name)
		if slices.Contains(s.links[linkKey("users", user, "roles")], role) {
			return true
		}
		for _, team := range s.objects["teams"] {
			if slices.Contains(s.links[linkKey("teams", team.id(), "users")], user) && slices.Contains(s.links[linkKey("teams", team.id(), "roles")], role) {
				return true
			}
		}
	}
	return false
}

// defaults are fields that AWX adds to an object that is made without them.
var defaults = map[string]object{
	"job_templates": {
		"description": "", "limit": "", "extra_vars": "", "skip_tags": "", "job_tags": "", "job_type": "run", "timeout": 0, "forks": 0, "verbosity": 0,
		"diff_mode": false, "become_enabled": false, "allow_simultaneous": false, "job_slice_count": 1, "survey_enabled": false, "ask_limit_on_launch": false,
		"ask_variables_on_launch": false, "ask_job_type_on_launch": false, "ask_skip_tags_on_launch": false, "ask_tags_on_launch": false,
		"ask_timeout_on_launch": false, "ask_inventory_on_launch": false, "ask_credential_on_launch": false, "ask_diff_mode_on_launch": false,
		"ask_verbosity_on_launch": false, "ask_job_slice_count_on_launch": false, "inventory": nil, "execution_environment": nil,
	},
	"workflow_job_templates": {
		"description": "", "extra_vars": "", "limit": nil, "allow_simultaneous": false, "survey_enabled": false, "ask_limit_on_launch": false,
		"ask_variables_on_launch": false, "inventory": nil,
	},
	"workflow_job_template_nodes": {"extra_data": map[string]any{}, "all_parents_must_converge": false},
	"projects":                    {"description": "", "scm_branch": "", "scm_update_on_launch": false, "allow_override": false, "credential": nil},
	"inventories":                 {"description": "", "variables": "", "kind": ""},
	"inventory_sources": {
		"description": "", "update_on_launch": false, "update_cache_timeout": 0, "overwrite": false, "overwrite_vars": false, "credential": nil,
		"execution_environment": nil, "source_vars": "",
	},
	"execution_environments": {"description": "", "pull": "", "credential": nil, "organization": nil},
	"credential_types":       {"description": "", "managed": false, "kind": "cloud"},
	"credentials":            {"description": "", "organization": nil},
	"teams":                  {"description": ""},
	"organizations":          {"description": ""},
}

// badRequestError is a 400 with AWX's body for it, forbiddenError a 403.
type badRequestError object

func (b badRequestError) Error() string { return fmt.Sprint(object(b)) }

type forbiddenError string

func (f forbiddenError) Error() string { return string(f) }

// control are query parameters that are no filters.
var control = []string{"page", "page_size", "order_by", "format"}

// filter keeps the objects that a query asks for, in its order.
func (s *store) filter(objects []object, query url.Values) ([]object, error) {
	kept := slices.Clone(objects)
	for name, values := range query {
		if slices.Contains(control, name) {
			continue
		}
		for _, value := range values {
			var failure error
			kept = slices.DeleteFunc(kept, func(o object) bool {
				ok, err := s.matches(o, name, value)
				if err != nil {
					failure = err
				}
				return !ok
			})
			if failure != nil {
				return nil, failure
			}
		}
	}
	if order := query.Get("order_by"); order != "" {
		field, descending := strings.CutPrefix(order, "-")
		slices.SortStableFunc(kept, func(a, b object) int {
			if descending {
				a, b = b, a
			}
			return compare(a[field], b[field])
		})
	}
	return kept, nil
}

// matches says whether an object passes a filter such as name, created__gte or organization__name.
func (s *store) matches(o object, filter, value string) (bool, error) {
	parts := strings.Split(filter, "__")
	operator := "exact"
	if last := parts[len(parts)-1]; len(parts) > 1 && slices.Contains([]string{"exact", "gt", "gte", "lt", "lte", "in", "icontains"}, last) {
		operator, parts = last, parts[:len(parts)-1]
	}
	if parts[0] == "extra_vars" {
		return false, forbiddenError("Filtering on extra_vars is not allowed.")
	}
	field, ok := o[parts[0]]
	if !ok {
		return false, badRequestError{"detail": fmt.Sprintf("There is no field named '%s'", parts[0])}
	}
	if len(parts) == 2 {
		field = s.get(relations[parts[0]], number(field))[parts[1]]
	}
	switch operator {
	case "exact":
		return text(field) == value, nil
	case "in":
		return slices.Contains(strings.Split(value, ","), text(field)), nil
	case "icontains":
		return strings.Contains(strings.ToLower(text(field)), strings.ToLower(value)), nil
	}
	order := compare(field, value)
	return order > 0 && operator[0] == 'g' || order < 0 && operator[0] == 'l' || order == 0 && strings.HasSuffix(operator, "e"), nil
}

// relations are the resources that fields refer to.
var relations = map[string]string{ //nolint:gosec // Names of lists.
	"organization": "organizations", "inventory": "inventories", "project": "projects", "credential_type": "credential_types", "job_template": "job_templates",
}

func text(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case bool:
		return strconv.FormatBool(v)
	}
	return fmt.Sprint(value)
}

// compare orders numbers as numbers, times as times, and all else as text.
func compare(a, b any) int {
	x, y := text(a), text(b)
	if m, err := strconv.Atoi(x); err == nil {
		if n, err := strconv.Atoi(y); err == nil {
			return cmp.Compare(m, n)
		}
	}
	if s, err := time.Parse(time.RFC3339Nano, x); err == nil {
		if t, err := time.Parse(time.RFC3339Nano, y); err == nil {
			return s.Compare(t)
		}
	}
	return strings.Compare(x, y)
}
