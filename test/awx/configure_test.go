// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package awx_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/test/awx"
)

// configure runs playbooks/configure_awx.yml, and returns what it printed and how many tasks changed something.
func configure(t *testing.T, server *awx.Server, variables map[string]any, args ...string) (output, changed string, err error) {
	t.Helper()
	g := NewWithT(t)
	repository, err := filepath.Abs("../..")
	g.Expect(err).NotTo(HaveOccurred())
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.crt")
	g.Expect(os.WriteFile(ca, server.CA, 0o600)).To(Succeed())
	all := map[string]any{"caplv_awx_ca_path": ca, "caplv_awx_scm_url": "https://git.example.com/caplv.git"}
	maps.Copy(all, variables)
	content, err := json.Marshal(all)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(filepath.Join(dir, "vars.json"), content, 0o600)).To(Succeed())
	cmd := exec.Command(filepath.Join(repository, ".venv", "bin", "ansible-playbook"),
		append([]string{"-i", "localhost,", "-e", "@" + filepath.Join(dir, "vars.json"), filepath.Join(repository, "playbooks", "configure_awx.yml")}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "ANSIBLE_CONFIG="+filepath.Join(repository, "ansible.cfg"), "ANSIBLE_COLLECTIONS_PATH="+filepath.Join(repository, "collections"),
		"ANSIBLE_NOCOLOR=1", "ANSIBLE_LOCAL_TEMP="+dir, "CONTROLLER_HOST="+server.URL, "CONTROLLER_OAUTH_TOKEN="+server.Token)
	printed, err := cmd.CombinedOutput()
	if match := regexp.MustCompile(`changed=(\d+)`).FindSubmatch(printed); match != nil {
		changed = string(match[1])
	}
	return string(printed), changed, err
}

func number(t *testing.T, object map[string]any) int {
	t.Helper()
	id, ok := object["id"].(int)
	if !ok {
		t.Fatalf("%v has no number", object)
	}
	return id
}

func TestConfigureAWX(t *testing.T) {
	g := NewWithT(t)
	project := t.TempDir()
	writeProject(t, project)
	server := awx.Start(t, "localhost,", "", awx.WithoutTemplates(), awx.WithProject(project))
	token := server.AddUser("caplv")
	key := filepath.Join(t.TempDir(), "key")
	g.Expect(os.WriteFile(key, []byte("-----BEGIN OPENSSH PRIVATE KEY-----\nsecret-key\n-----END OPENSSH PRIVATE KEY-----\n"), 0o600)).To(Succeed())
	variables := map[string]any{
		"caplv_awx_execution_environment_image": "registry.example.com/caplv-ee:latest", "caplv_awx_machine_key_file": key,
		"caplv_awx_kubernetes_host": "https://api.example.com:6443", "caplv_awx_kubernetes_token": "secret-token", "caplv_awx_team": "CAPLV operators",
		"caplv_awx_service_user": "caplv", "caplv_awx_organization": "Virtualisation", "caplv_awx_create_organization": true,
		"caplv_awx_inventory_variables": map[string]any{"caplv_operator_keys": []string{"ssh-ed25519 AAAA operator"}},
	}
	lists := []string{
		"organizations", "credentials", "projects", "execution_environments", "inventories", "inventory_sources", "job_templates", "workflow_job_templates",
		"workflow_job_template_nodes", "teams",
	}
	before := map[string]int{}
	for _, list := range lists {
		before[list] = len(server.Objects(list))
	}

	output, changed, err := configure(t, server, variables, "--check", "--diff")
	g.Expect(err).NotTo(HaveOccurred(), output)
	g.Expect(changed).NotTo(Equal("0"))
	for _, request := range server.Requests() {
		g.Expect(request.Method).To(Equal("GET"))
	}

	output, changed, err = configure(t, server, variables, "--diff")
	g.Expect(err).NotTo(HaveOccurred(), output)
	g.Expect(changed).NotTo(Equal("0"))
	g.Expect(output).NotTo(Or(ContainSubstring("secret-key"), ContainSubstring("secret-token"), ContainSubstring(server.Token)))
	for list, count := range map[string]int{
		"organizations": 1, "credentials": 2, "projects": 1, "execution_environments": 1, "inventories": 1, "inventory_sources": 1, "job_templates": 5,
		"workflow_job_templates": 1, "workflow_job_template_nodes": 3, "teams": 1,
	} {
		g.Expect(len(server.Objects(list))-before[list]).To(Equal(count), list)
	}
	for _, template := range server.Objects("job_templates") {
		for _, field := range []string{"ask_limit_on_launch", "ask_variables_on_launch", "ask_job_type_on_launch", "ask_skip_tags_on_launch", "allow_simultaneous"} {
			g.Expect(template[field]).To(BeTrue(), "%s of %s", field, template["name"])
		}
		g.Expect(server.Linked("job_templates", number(t, template), "credentials")).To(HaveLen(1))
	}
	g.Expect(server.Objects("job_templates")[0]["extra_vars"]).To(ContainSubstring("{{ (caplv_answer_keys"))
	source := server.Objects("inventory_sources")[0]
	g.Expect(source["source_path"]).To(Equal("inventory/caplv.libvirthosts.yml"))
	g.Expect(source["credential"]).NotTo(BeNil())
	nodes := server.Objects("workflow_job_template_nodes")
	g.Expect(server.Linked("workflow_job_template_nodes", number(t, nodes[0]), "success_nodes")).To(Equal([]int{number(t, nodes[1])}))
	g.Expect(server.Linked("workflow_job_template_nodes", number(t, nodes[1]), "success_nodes")).To(Equal([]int{number(t, nodes[2])}))

	output, changed, err = configure(t, server, variables)
	g.Expect(err).NotTo(HaveOccurred(), output)
	g.Expect(changed).To(Equal("0"), output)

	g.Expect(mayLaunch(server, token)).To(BeTrue())
	surveysReachTheRoles(t, server, project)
}

// writeProject writes playbooks that only write down the variables that surveys are for.
func writeProject(t *testing.T, dir string) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(os.Mkdir(filepath.Join(dir, "playbooks"), 0o700)).To(Succeed())
	for playbook, variable := range map[string]string{"onboard_host": "caplv_authorized_keys", "stage_base_image": "caplv_base_images"} {
		g.Expect(os.WriteFile(filepath.Join(dir, "playbooks", playbook+".yml"), fmt.Appendf(nil, `
- name: Variables
  hosts: all
  connection: local
  gather_facts: false
  vars:
    ansible_python_interpreter: "{{ ansible_playbook_python }}"
  tasks:
    - name: They are written down
      ansible.builtin.copy:
        content: "{{ %s | to_json }}"
        dest: %s/%s
        mode: "0600"
`, variable, dir, variable), 0o600)).To(Succeed())
	}
}

// surveysReachTheRoles launches templates as a person does.
func surveysReachTheRoles(t *testing.T, server *awx.Server, project string) {
	t.Helper()
	digest := strings.Repeat("0123456789abcdef", 4)
	for _, row := range []struct {
		template, variable string
		answers            map[string]any
		becomes            string
	}{
		{"CAPLV onboard_host", "caplv_authorized_keys", map[string]any{"caplv_answer_keys": "ssh-ed25519 AAAA one\n\n {{ lookup('pipe', 'id') }} \n"},
			`["ssh-ed25519 AAAA one", "{{ lookup('pipe', 'id') }}"]`},
		{"CAPLV onboard_host", "caplv_authorized_keys", map[string]any{}, `[]`},
		{"CAPLV onboard_host", "caplv_authorized_keys", map[string]any{"caplv_operator_keys": []string{"ssh-ed25519 AAAA fleet"}}, `["ssh-ed25519 AAAA fleet"]`},
		// As the operator does.
		{"CAPLV onboard_host", "caplv_authorized_keys", map[string]any{"caplv_authorized_keys": []string{"ssh-ed25519 AAAA object"}}, `["ssh-ed25519 AAAA object"]`},
		{"CAPLV stage_base_image", "caplv_base_images",
			map[string]any{"caplv_answer_image": "node.qcow2", "caplv_answer_image_sha256": digest, "caplv_answer_image_url": "https://mirror.example.com/node.qcow2"},
			`[{"name": "node.qcow2", "sha256": "` + digest + `", "sources": [{"url": "https://mirror.example.com/node.qcow2"}]}]`},
		{"CAPLV stage_base_image", "caplv_base_images", map[string]any{}, `[]`},
	} {
		g := NewWithT(t)
		var template map[string]any
		for _, object := range server.Objects("job_templates") {
			if object["name"] == row.template {
				template = object
			}
		}
		job := launch(t, server, number(t, template), row.answers)
		g.Eventually(func() any {
			for _, j := range server.Jobs() {
				if j["id"] == job {
					return j["status"]
				}
			}
			return nil
		}).WithTimeout(60 * time.Second).Should(Equal("successful"))
		content, err := os.ReadFile(filepath.Join(project, row.variable))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(content)).To(MatchJSON(row.becomes))
	}
}

func TestConfigureAWXNamesWhatIsMissing(t *testing.T) {
	server := awx.Start(t, "localhost,", "", awx.WithoutTemplates())
	for name, row := range map[string]struct {
		variables map[string]any
		says      string
	}{
		"the repository":         {map[string]any{"caplv_awx_scm_url": ""}, "caplv_awx_scm_url is empty"},
		"HTTPS":                  {map[string]any{"caplv_awx_url": "http://awx"}, "must read https://HOST"},
		"the organization":       {map[string]any{"caplv_awx_organization": "None"}, "AWX shows none of organizations"},
		"the machine credential": {map[string]any{}, "AWX shows none of credentials"},
		"the right prefix":       {map[string]any{"caplv_awx_api_prefix": "/api/v1"}, "404"},
		"the right token":        {map[string]any{"caplv_awx_token": "wrong"}, "401"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			output, _, err := configure(t, server, row.variables)
			g.Expect(err).To(HaveOccurred())
			g.Expect(strings.Join(strings.Fields(output), " ")).To(ContainSubstring(row.says))
			for _, request := range server.Requests() {
				g.Expect(request.Method).To(Equal("GET"), fmt.Sprint(request))
			}
		})
	}
}
