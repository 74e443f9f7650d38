// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package awx

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// call is one request, as far as it has been understood.
type call struct {
	method string
	// resource is a list such as jobs, id an object of it, and list what follows, such as job_events.
	resource, name, list string
	id                   int
	query                url.Values
	fields               object
	user                 int
}

// reply is what is answered: an object, a list of objects (paged), or a text.
type reply struct {
	status int
	body   object
	list   []object
	paged  bool
	text   string
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	user, known := s.authenticate(r)
	s.mu.Lock()
	s.log = append(s.log, Request{Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Token: known, Body: body, Time: time.Now()})
	fault, redirect, hook := s.fault(r), s.traps.Redirect, s.hook
	s.mu.Unlock()
	if hook != nil {
		hook(r.Method, r.URL.Path)
	}
	if redirect != "" {
		http.Redirect(w, r, redirect+r.URL.RequestURI(), http.StatusFound) //nolint:gosec // It is what the test asks for.
		return
	}
	if fault != nil {
		time.Sleep(fault.Delay)
		if fault.Late {
			s.handle(discard{http.Header{}}, r, body, user, known)
		}
		fault.answer(w)
		return
	}
	s.handle(w, r, body, user, known)
}

// discard is where the answer goes that nobody gets.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

func (s *Server) authenticate(r *http.Request) (user int, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	user, known = s.tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	return user, known
}

func (s *Server) handle(w http.ResponseWriter, r *http.Request, body []byte, user int, known bool) {
	path, ok := strings.CutPrefix(r.URL.Path, AWXPrefix+"/")
	if !ok {
		path, ok = strings.CutPrefix(r.URL.Path, PlatformPrefix+"/")
	}
	switch {
	case !ok:
		answer(w, http.StatusNotFound, object{"detail": "The requested resource could not be found."})
		return
	case !strings.HasSuffix(path, "/"):
		http.Redirect(w, r, r.URL.Path+"/?"+r.URL.RawQuery, http.StatusMovedPermanently) //nolint:gosec // As Django does.
		return
	case path == "ping/":
		answer(w, http.StatusOK, object{"ha": false, "version": "24.6.1", "active_node": "awx"})
		return
	case !known:
		answer(w, http.StatusUnauthorized, object{"detail": "Authentication credentials were not provided. To establish a login session, visit /api/login/."})
		return
	}
	c := call{method: r.Method, query: r.URL.Query(), user: user}
	if len(bytes.TrimSpace(body)) > 0 {
		if err := json.Unmarshal(body, &c.fields); err != nil {
			answer(w, http.StatusBadRequest, object{"detail": "JSON parse error"})
			return
		}
		for name := range c.fields {
			c.fields[name] = whole(c.fields[name])
		}
	}
	words := strings.Split(strings.Trim(path, "/"), "/")
	c.resource = words[0]
	if len(words) > 1 {
		c.name = words[1]
	}
	if len(words) > 2 {
		c.list = words[2]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	got, err := s.dispatch(&c)
	s.write(w, &c, got, err)
}

func (s *Server) write(w http.ResponseWriter, c *call, got reply, err error) {
	if bad, ok := errors.AsType[badRequestError](err); ok {
		answer(w, http.StatusBadRequest, object(bad))
		return
	}
	if denied, ok := errors.AsType[forbiddenError](err); ok {
		answer(w, http.StatusForbidden, object{"detail": string(denied)})
		return
	}
	switch {
	case got.text != "":
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write([]byte(got.text))
	case got.paged:
		s.page(w, c, got.list)
	case got.status == 0:
		answer(w, http.StatusNotFound, object{"detail": "Not found."})
	default:
		answer(w, got.status, got.body)
	}
}

func (s *Server) page(w http.ResponseWriter, c *call, all []object) {
	kept, err := s.store.filter(all, c.query)
	if err != nil {
		s.write(w, c, reply{}, err)
		return
	}
	number, size := 1, 25
	if n, err := strconv.Atoi(c.query.Get("page")); err == nil {
		number = n
	}
	if n, err := strconv.Atoi(c.query.Get("page_size")); err == nil {
		size = min(n, 200)
	}
	first := (number - 1) * size
	if number < 1 || size < 1 || first > 0 && first >= len(kept) {
		answer(w, http.StatusNotFound, object{"detail": "Invalid page."})
		return
	}
	shown := kept[min(first, len(kept)):min(first+size, len(kept))]
	body := object{"count": len(kept), "next": nil, "previous": nil, "results": append([]object{}, shown...)}
	if first+size < len(kept) {
		body["next"] = fmt.Sprintf("/api/v2/%s/?page=%d", c.resource, number+1)
	}
	answer(w, http.StatusOK, body)
}

func answer(w http.ResponseWriter, status int, body object) {
	content, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if status != http.StatusNoContent {
		_, _ = w.Write(content)
	}
}

// dispatch carries a request out. s.mu is held.
func (s *Server) dispatch(c *call) (reply, error) {
	if c.resource == "jobs" || c.resource == "workflow_jobs" {
		return s.jobRequest(c)
	}
	if c.resource == "me" {
		return reply{paged: true, list: []object{s.store.get("users", c.user)}}, nil
	}
	if c.name == "" {
		return s.listRequest(c)
	}
	o := s.lookUp(c)
	if o == nil || !s.mayRead(c, o.id()) {
		return reply{}, nil
	}
	c.id = o.id()
	switch {
	case c.resource == "job_templates" && c.list == "launch":
		return s.launchRequest(c, o)
	case c.list == "survey_spec":
		return s.surveyRequest(c, o)
	case c.list != "":
		return s.subListRequest(c)
	case c.method == http.MethodGet:
		return reply{status: http.StatusOK, body: s.render(c, o)}, nil
	case c.method == http.MethodPatch:
		if err := s.change(c, o, c.fields); err != nil {
			return reply{}, err
		}
		return reply{status: http.StatusOK, body: s.render(c, o)}, nil
	}
	return reply{status: http.StatusMethodNotAllowed, body: object{"detail": "Method not allowed."}}, nil
}

// lookUp finds an object by its number or its named URL, such as NAME++ORGANIZATION.
func (s *Server) lookUp(c *call) object {
	if id, err := strconv.Atoi(c.name); err == nil {
		return s.store.get(c.resource, id)
	}
	name, organization, _ := strings.Cut(c.name, "++")
	for _, o := range s.store.objects[c.resource] {
		if o["name"] == name && text(s.store.get("organizations", number(o["organization"]))["name"]) == organization {
			return o
		}
	}
	return nil
}

// mayRead says whether the user sees an object: of job templates, only those that they have a role on.
func (s *Server) mayRead(c *call, id int) bool {
	return c.resource != "job_templates" || s.store.allows(c.user, c.resource, id, "admin_role", "execute_role", "read_role")
}

func (s *Server) listRequest(c *call) (reply, error) {
	if _, known := resources[c.resource]; !known {
		return reply{}, nil
	}
	if c.method == http.MethodPost {
		return s.create(c)
	}
	var seen []object
	for _, o := range s.store.objects[c.resource] {
		if s.mayRead(c, o.id()) {
			seen = append(seen, s.render(c, o))
		}
	}
	return reply{paged: true, list: seen}, nil
}

// render is an object as the API shows it.
func (s *Server) render(c *call, o object) object {
	shown := maps.Clone(o)
	delete(shown, "survey_spec")
	summary := object{}
	if organization := s.store.get("organizations", number(o["organization"])); organization != nil {
		summary["organization"] = object{"id": organization.id(), "name": organization["name"]}
	}
	roles := object{}
	for _, role := range []string{"admin_role", "execute_role", "read_role", "use_role"} {
		if slices.Contains(resourcesWithRoles, c.resource) {
			roles[role] = object{"id": s.store.role(c.resource, o.id(), role), "name": role}
		}
	}
	summary["object_roles"] = roles
	if c.resource == "job_templates" {
		summary["user_capabilities"] = object{"start": s.store.allows(c.user, c.resource, o.id(), "admin_role", "execute_role")}
	}
	shown["summary_fields"] = summary
	if inputs, ok := o["inputs"].(map[string]any); ok && c.resource == "credentials" {
		hidden := map[string]any{}
		for name := range inputs {
			hidden[name] = "$encrypted$"
		}
		shown["inputs"] = hidden
	}
	return shown
}
