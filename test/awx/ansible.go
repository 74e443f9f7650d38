// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package awx

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is how often files and turns are looked at, and grace how long a process has to end by itself.
const (
	tick  = 50 * time.Millisecond
	grace = 5 * time.Second
)

// run takes a job through its life.
func (s *Server) run(j *job) {
	if !s.waitForTurn(j) {
		s.finish(j, "canceled", "")
		return
	}
	dir := filepath.Join(s.dir, strconv.Itoa(j.id))
	status, explanation := "error", ""
	cmd, err := s.command(j, dir)
	if err == nil {
		status, explanation, err = s.carryOut(j, cmd, dir)
	}
	if err != nil {
		status, explanation = "error", err.Error()
	}
	s.finish(j, status, explanation)
}

// waitForTurn waits for the other jobs of a template without concurrent jobs.
func (s *Server) waitForTurn(j *job) bool {
	for {
		s.mu.Lock()
		free := true
		for _, other := range s.jobs {
			if other.template.id() == j.template.id() && other.id < j.id && !other.ended() && j.template["allow_simultaneous"] != true {
				free = false
			}
		}
		if free && !j.ended() {
			j.status, j.started = "running", now()
		}
		s.mu.Unlock()
		select {
		case <-j.canceled:
			return false
		default:
		}
		if free {
			return true
		}
		time.Sleep(tick)
	}
}

func (s *Server) finish(j *job, status, explanation string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !j.ended() {
		j.status, j.explanation, j.finished = status, explanation, now()
	}
	j.stored = true
}

// command is the one that AWX runs: variables in a file, those of the launch marked as unsafe, and no verification of host keys.
func (s *Server) command(j *job, dir string) (*exec.Cmd, error) {
	if err := os.MkdirAll(filepath.Join(dir, "cp"), 0o700); err != nil {
		return nil, err
	}
	variables := filepath.Join(dir, "extravars")
	if err := os.WriteFile(variables, []byte(unsafeYAML(j.variables, j.trusted)), 0o600); err != nil {
		return nil, err
	}
	args := []string{"-i", s.inventory, "-u", "root", "-e", "@" + variables}
	if s.key != "" {
		args = append(args, "--private-key", s.key)
	}
	if j.limit != "" {
		args = append(args, "--limit", j.limit)
	}
	if j.jobType == "check" {
		args = append(args, "--check")
	}
	if j.skipTags != "" {
		args = append(args, "--skip-tags", j.skipTags)
	}
	environment := filepath.Join(s.repository, ".venv", "bin")
	cmd := exec.Command(filepath.Join(environment, "ansible-playbook"), append(args, filepath.Join(s.project, j.playbook))...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + environment + ":" + os.Getenv("PATH"), "HOME=" + dir, "LANG=C.UTF-8", marker(dir),
		"ANSIBLE_CONFIG=" + filepath.Join(s.repository, "ansible.cfg"), "ANSIBLE_COLLECTIONS_PATH=" + filepath.Join(s.repository, "collections"),
		"ANSIBLE_CALLBACK_PLUGINS=" + filepath.Join(s.repository, "test", "awx", "callback"), "ANSIBLE_CALLBACKS_ENABLED=awx_events",
		"ANSIBLE_LOCAL_TEMP=" + filepath.Join(dir, "tmp"), "ANSIBLE_SSH_CONTROL_PATH_DIR=" + filepath.Join(dir, "cp"), "ANSIBLE_NOCOLOR=1",
		"ANSIBLE_HOST_KEY_CHECKING=False", "ANSIBLE_RETRY_FILES_ENABLED=False", "CAPLV_AWX_EVENTS=" + filepath.Join(dir, "events"),
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd, nil
}

func marker(dir string) string { return "CAPLV_AWX_JOB=" + dir }

// unsafeYAML writes variables so that only those that are the template's own are evaluated.
func unsafeYAML(variables, trusted map[string]any) string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		mark := "!unsafe "
		if value, ok := trusted[name]; ok && reflect.DeepEqual(value, variables[name]) {
			mark = ""
		}
		fmt.Fprintf(&out, "%s: %s\n", encode(name), flow(variables[name], mark))
	}
	if out.Len() == 0 {
		return "{}\n"
	}
	return out.String()
}

func flow(value any, mark string) string {
	switch v := value.(type) {
	case string:
		return mark + encode(v)
	case []any:
		parts := make([]string, 0, len(v))
		for _, entry := range v {
			parts = append(parts, flow(entry, mark))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		parts := make([]string, 0, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, "? "+encode(name)+" : "+flow(v[name], mark))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return encode(value)
}

// carryOut runs the process, takes its events while it runs, and ends it when it is canceled or out of time.
func (s *Server) carryOut(j *job, cmd *exec.Cmd, dir string) (status, explanation string, err error) {
	// A file: the connections that ssh keeps would hold a pipe open.
	output, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		return "", "", err
	}
	defer func() { _ = output.Close() }()
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		return "", "", err
	}
	ended := make(chan struct{})
	var failure error
	go func() {
		failure = cmd.Wait()
		close(ended)
	}()
	var limit <-chan time.Time
	if j.timeout > 0 {
		limit = time.After(time.Duration(j.timeout) * time.Second)
	}
	reader := &events{server: s, job: j, path: filepath.Join(dir, "events")}
	defer func() {
		sweep(marker(dir))
		reader.take()
		content, _ := os.ReadFile(output.Name())
		s.mu.Lock()
		j.output = string(content)
		s.mu.Unlock()
	}()
	for {
		select {
		case <-ended:
			if failure != nil && cmd.ProcessState != nil && cmd.ProcessState.ExitCode() != 0 {
				return "failed", "", nil
			}
			return "successful", "", nil
		case <-j.canceled:
			end(cmd, ended)
			return "canceled", "", nil
		case <-limit:
			end(cmd, ended)
			return "failed", "Job terminated due to timeout", nil
		case <-time.After(tick):
			reader.take()
		}
	}
}

// end ends a process and its children. Ansible's workers leave its group, so it is asked first to end them itself.
func end(cmd *exec.Cmd, ended <-chan struct{}) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
	select {
	case <-ended:
	case <-time.After(grace):
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
	}
}

// sweep ends what a job has left: workers, and the connections that ssh keeps for the next one.
func sweep(mark string) {
	entries, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return
	}
	for _, entry := range entries {
		content, err := os.ReadFile(entry)
		if err != nil || !slices.Contains(strings.Split(string(content), "\x00"), mark) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(entry))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// events reads what the callback writes.
type events struct {
	server *Server
	job    *job
	path   string
	offset int64
}

func (e *events) take() {
	file, err := os.Open(e.path)
	if err != nil {
		return
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(e.offset, io.SeekStart); err != nil {
		return
	}
	e.server.mu.Lock()
	defer e.server.mu.Unlock()
	for reader := bufio.NewReader(file); ; {
		line, err := reader.ReadBytes('\n')
		if err != nil {
			// Half a line is read again.
			return
		}
		e.offset += int64(len(line))
		event := object{"changed": false, "host_name": "", "task": "", "role": "", "stdout": "", "event_data": map[string]any{}}
		if json.Unmarshal(line, &event) != nil {
			continue
		}
		for name := range event {
			event[name] = whole(event[name])
		}
		event["id"] = event["counter"]
		event["created"] = stamp(now())
		e.job.events = append(e.job.events, event)
		e.job.visible = append(e.job.visible, time.Now().Add(e.lag(number(event["counter"]))))
	}
}

func (e *events) lag(counter int) time.Duration {
	lag := e.server.traps.EventLag
	if e.server.traps.Shuffled && counter%2 == 0 {
		return lag / 2
	}
	return lag
}
