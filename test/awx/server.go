// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package awx plays AWX for tests: a server with its REST API, as far as CAPLV uses it, that really runs playbooks with ansible-playbook.
//
// It has AWX's traps as well: what a template does not prompt for is ignored, an empty limit means all hosts, launches have no keys, a launch
// of a template without concurrent jobs waits, events are stored later than the job ends. Trouble that an AWX has at times is in Traps.
package awx

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

const (
	// AWXPrefix is where AWX has its API, PlatformPrefix where Ansible Automation Platform 2.5 and newer has it. The server has both.
	AWXPrefix      = "/api/v2"
	PlatformPrefix = "/api/controller/v2"
	// Organization is the organization that the server begins with.
	Organization = "Default"
)

// Playbooks are those that a server begins with job templates for: "CAPLV " and the name.
var Playbooks = []string{"onboard_host", "harden_session", "stage_base_image", "verify_host", "offboard_host"}

// Server is an AWX.
type Server struct {
	// URL is where it is, Token that of its administrator, and CA the certificate (PEM) that it is verified against.
	URL   string
	Token string
	CA    []byte
	// Traps is what goes wrong. Change it with Set.
	traps Traps

	inventory  string
	key        string
	project    string
	repository string
	dir        string

	mu     sync.Mutex
	store  store
	jobs   []*job
	log    []Request
	hook   func(method, path string)
	tokens map[string]int
	http   *httptest.Server
	// running waits for the jobs' processes.
	running sync.WaitGroup
}

// Option changes how a server begins.
type Option func(*Server)

// WithProject has playbooks come from another directory than the repository; their paths in job templates are relative to it.
func WithProject(dir string) Option { return func(s *Server) { s.project = dir } }

// WithoutTemplates has the server begin as AWX does after its installation, with the organization Default and nothing else.
func WithoutTemplates() Option { return func(s *Server) { s.store.remove("job_templates") } }

// Start starts a server that ends with the test. Its playbooks run on the hosts of an inventory, which is a path as after ansible-playbook -i,
// and log in with a private key, as a machine credential would have it; without one, with what the inventory says. It begins with a job
// template for each playbook, as playbooks/configure_awx.yml makes them.
func Start(t testing.TB, inventory, privateKeyFile string, options ...Option) *Server {
	t.Helper()
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		t.Fatal("awx: the repository cannot be found")
	}
	repository := filepath.Dir(filepath.Dir(filepath.Dir(file)))
	// Short: the sockets of ssh are below it.
	dir, err := os.MkdirTemp("", "awx") //nolint:usetesting // That of the test would be too long.
	if err != nil {
		t.Fatal("awx: ", err)
	}
	s := &Server{
		Token: "admin-token-for-tests", inventory: inventory, key: privateKeyFile, project: repository, repository: repository, dir: dir,
		store: newStore(), tokens: map[string]int{},
	}
	s.begin()
	for _, option := range options {
		option(s)
	}
	s.http = httptest.NewTLSServer(http.HandlerFunc(s.serve))
	s.URL = s.http.URL
	s.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
	t.Cleanup(s.stop)
	return s
}

// begin makes what is there from the beginning.
func (s *Server) begin() {
	admin := s.store.add("users", object{"username": "admin", "is_superuser": true})
	s.tokens[s.Token] = admin
	organization := s.store.add("organizations", object{"name": Organization})
	for _, kind := range []object{
		{"name": "Machine", "kind": "ssh", "namespace": "ssh", "managed": true},
		{"name": "OpenShift or Kubernetes API Bearer Token", "kind": "kubernetes", "namespace": "kubernetes_bearer_token", "managed": true},
	} {
		s.store.add("credential_types", kind)
	}
	inventory := s.store.add("inventories", object{"name": "hosts of the test", "organization": organization})
	project := s.store.add("projects", object{"name": "project of the test", "organization": organization, "status": "successful", "scm_type": "git"})
	for _, playbook := range Playbooks {
		s.store.add("job_templates", object{
			"name": "CAPLV " + playbook, "organization": organization, "inventory": inventory, "project": project, "playbook": "playbooks/" + playbook + ".yml",
			"job_type": "run", "ask_limit_on_launch": true, "ask_variables_on_launch": true, "ask_job_type_on_launch": true,
			"ask_skip_tags_on_launch": true, "allow_simultaneous": true,
		})
	}
}

func (s *Server) stop() {
	s.mu.Lock()
	for _, j := range s.jobs {
		j.stop()
	}
	s.mu.Unlock()
	s.running.Wait()
	s.http.CloseClientConnections()
	s.http.Close()
	_ = os.RemoveAll(s.dir)
}

// AddUser adds a user without any right, and returns a token for it.
func (s *Server) AddUser(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	token := "token-of-" + name
	s.tokens[token] = s.store.add("users", object{"username": name, "is_superuser": false})
	return token
}

// Grant gives a user a role on the job template of a name: execute_role or read_role.
func (s *Server) Grant(user, role, template string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u, t := s.store.find("users", "username", user), s.store.find("job_templates", "name", template)
	s.store.link("users", u.id(), "roles", s.store.role("job_templates", t.id(), role))
}

// Change changes the job template of a name, as somebody would in AWX.
func (s *Server) Change(template string, fields map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.store.find("job_templates", "name", template)
	for name, value := range fields {
		o[name] = normal(value)
	}
}

// Add adds an object, such as another job_templates, and returns its number.
func (s *Server) Add(resource string, fields map[string]any) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := object{}
	for name, value := range fields {
		o[name] = normal(value)
	}
	return s.store.add(resource, o)
}

// Set changes the traps.
func (s *Server) Set(change func(*Traps)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.traps)
}

// OnRequest has a function called before each request is carried out, as if somebody else had been a moment faster. nil ends that.
func (s *Server) OnRequest(hook func(method, path string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = hook
}

// Requests are all that have come so far, or since Forget.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.log...)
}

// Forget empties the list of requests.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = nil
}

// Request is one that has come.
type Request struct {
	Method, Path, Query string
	// Token says whether it had a known token.
	Token bool
	Body  []byte
	Time  time.Time
}

func (r Request) String() string { return fmt.Sprintf("%s %s?%s", r.Method, r.Path, r.Query) }
