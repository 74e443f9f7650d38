// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package virsh

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"strings"
)

// Observe implements Client. Listings decide what exists; the dumps that follow in the same round trip are only believed
// for what is listed.
func (s *Shell) Observe(ctx context.Context, query Query) (Observation, error) {
	b := &batch{}
	domains := b.add(cmd("list", "--all --name"))
	transient := b.add(cmd("list", "--transient --name"))
	dump := b.add(domainCmd("dumpxml", "--inactive", query.Domain))
	state := b.add(domainCmd("domstate", "--reason", query.Domain))
	pools := b.add(cmd("pool-list", "--all --name"))
	activePools := b.add(cmd("pool-list", "--name"))
	poolDumps := make([]int, len(query.Pools))
	for i, name := range query.Pools {
		poolDumps[i] = b.add(cmd("pool-dumpxml", "", name))
	}
	volumes := map[string]int{}
	volumeDumps := make([]int, len(query.Volumes))
	for i, ref := range query.Volumes {
		if _, ok := volumes[ref.Pool]; !ok {
			volumes[ref.Pool] = b.add(cmd("vol-list", "", ref.Pool))
		}
		volumeDumps[i] = b.add(cmd("vol-dumpxml", "--pool", ref.Pool, ref.Name))
	}
	networks, activeNetworks := -1, -1
	if len(query.Networks) > 0 {
		networks = b.add(cmd("net-list", "--all --name"))
		activeNetworks = b.add(cmd("net-list", "--name"))
	}
	outputs, err := s.read(ctx, b.commands...)
	if err != nil {
		return Observation{}, err
	}
	b.outputs = outputs

	obs := Observation{Pools: map[string]PoolInfo{}, Volumes: map[VolumeRef]string{}, Networks: map[string]bool{}}
	if b.listed(domains, query.Domain) {
		info := &DomainInfo{XML: b.text(dump)}
		info.State, info.Reason = parseState(b.text(state))
		info.Transient = b.listed(transient, query.Domain)
		obs.Domain = info
	}
	for i, name := range query.Pools {
		if b.listed(pools, name) {
			obs.Pools[name] = PoolInfo{Active: b.listed(activePools, name), XML: b.text(poolDumps[i])}
		}
	}
	for i, ref := range query.Volumes {
		// The pool's activity is asked first: an inactive pool lists nothing.
		if obs.Pools[ref.Pool].Active && listsVolume(b.text(volumes[ref.Pool]), ref.Name) {
			obs.Volumes[ref] = b.volume(volumeDumps[i])
		}
	}
	for _, name := range query.Networks {
		if b.listed(networks, name) {
			obs.Networks[name] = b.listed(activeNetworks, name)
		}
	}
	if b.err == nil && obs.Domain != nil && obs.Domain.State == StatePaused && obs.Domain.Reason == ReasonIOError {
		// It asks QEMU, which may be stuck, and is therefore not asked of every domain.
		if obs.Domain.DiskErrors, err = s.diskErrors(ctx, query.Domain); err != nil {
			return Observation{}, err
		}
	}
	return obs, b.err
}

// diskErrors asks what is wrong with a domain's disks. One that has stopped meanwhile has nothing to say about them.
func (s *Shell) diskErrors(ctx context.Context, name string) (map[string]string, error) {
	outputs, err := s.read(ctx, domainCmd("domblkerror", "", name))
	if err != nil {
		return nil, err
	}
	return parseDiskErrors(outputs[0].stdout), nil
}

// parseDiskErrors reads the output of domblkerror, whose lines are "vda: no space".
func parseDiskErrors(text string) map[string]string {
	errs := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		if disk, words, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && disk != "" && words != "" {
			errs[disk] = words
		}
	}
	return errs
}

// batch is commands that are executed in one go, and their outputs. Its first error stays.
type batch struct {
	commands []command
	outputs  []output
	err      error
}

func (b *batch) add(c command) int {
	b.commands = append(b.commands, c)
	return len(b.commands) - 1
}

// text is the output of a command that must succeed.
func (b *batch) text(i int) string {
	if err := b.outputs[i].failure(b.commands[i]); err != nil && b.err == nil {
		b.err = err
	}
	return b.outputs[i].stdout
}

// volume is the description of a volume that is listed. There is none while the host has no file for it: a copy that has
// just begun is listed before its file is made, and one that was removed by hand until the pool is refreshed.
func (b *batch) volume(i int) string {
	switch ReasonOf(b.outputs[i].failure(b.commands[i])) {
	case VolumeNotFound, FileNotFound:
		return ""
	}
	return b.text(i)
}

// listed says whether a listing, which must succeed, has this name.
func (b *batch) listed(i int, name string) bool { return lists(b.text(i), name) }

// lists says whether the output of a listing has this name on a line of its own.
func lists(output, name string) bool {
	for line := range strings.SplitSeq(output, "\n") {
		if strings.TrimRight(line, " ") == name {
			return name != ""
		}
	}
	return false
}

// listsVolume says whether the output of vol-list has this name. Its lines hold a name, blanks up to the next column, and the
// volume's path; a name that holds blanks is therefore looked for as a whole.
func listsVolume(output, name string) bool {
	for line := range strings.SplitSeq(output, "\n") {
		rest, ok := strings.CutPrefix(strings.TrimPrefix(line, " "), name+" ")
		if path := strings.TrimLeft(rest, " "); ok && name != "" && (strings.HasPrefix(path, "/") || !strings.Contains(path, " ")) {
			return true
		}
	}
	return false
}

// parseState reads the output of domstate --reason: "paused (I/O error)".
func parseState(text string) (State, string) {
	text = strings.TrimSpace(text)
	state, reason, _ := strings.Cut(text, " (")
	return State(state), strings.TrimSuffix(reason, ")")
}

// Probe implements Client.
func (s *Shell) Probe(ctx context.Context, virtType string) (Hypervisor, error) {
	b := &batch{}
	version := b.add(cmd("version", ""))
	info := b.add(cmd("nodeinfo", ""))
	memory := b.add(cmd("nodememstats", ""))
	domains := b.add(cmd("domcapabilities", "--virttype", virtType))
	capabilities := b.add(cmd("capabilities", ""))
	outputs, err := s.read(ctx, b.commands...)
	if err != nil {
		return Hypervisor{}, err
	}
	b.outputs = outputs
	host := b.text(capabilities)
	offered := offers(virtType, host, outputs[domains].failure(b.commands[domains]))
	h := Hypervisor{}
	if s.mode == ModeSystem {
		// A session's daemon may not read it, and makes one up at each start.
		h.SystemUUID = systemUUID(host)
	}
	for line := range strings.SplitSeq(b.text(version), "\n") {
		if v, ok := strings.CutPrefix(line, "Using library: libvirt "); ok {
			h.LibvirtVersion = strings.TrimSpace(v)
		}
		if v, ok := strings.CutPrefix(line, "Running hypervisor: "); ok {
			h.HypervisorVersion = v[strings.LastIndexByte(v, ' ')+1:]
		}
	}
	// nodememstats only improves on nodeinfo; not every machine has it.
	h.CPUs, h.MemoryMiB = parseSize(b.text(info), outputs[memory].stdout)
	if b.err == nil {
		b.err = offered
	}
	if b.err == nil && (h.CPUs == 0 || h.MemoryMiB == 0) {
		b.err = &Error{Reason: Unknown, Command: "nodeinfo", Message: "the host does not tell its CPUs and memory"}
	}
	return h, b.err
}

// offers looks into a failure of domcapabilities: a type that the host's capabilities do not list is unsupported, in whatever
// language the daemon says so. It returns the failure as it is to be reported.
func offers(virtType, capabilities string, failure error) error {
	e, ok := errors.AsType[*Error](failure)
	if !ok || e.Reason == VirtTypeUnsupported || capabilities == "" || strings.Contains(capabilities, "<domain type='"+virtType+"'") {
		return failure
	}
	return &Error{Reason: VirtTypeUnsupported, Command: e.Command, Message: e.Message}
}

// systemUUID reads the board's UUID from the host's capabilities.
func systemUUID(capabilities string) string {
	var view struct {
		XMLName xml.Name `xml:"capabilities"`
		UUID    string   `xml:"host>uuid"`
	}
	if err := xml.Unmarshal([]byte(capabilities), &view); err != nil {
		return ""
	}
	return strings.ToLower(strings.TrimSpace(view.UUID))
}

// parseSize reads the number of CPUs from nodeinfo, and the memory from whichever of nodeinfo and nodememstats knows of
// more: on a machine whose memory was extended while it ran, the former only sees a part.
func parseSize(nodeinfo, nodememstats string) (cpus, memoryMiB uint) {
	var kib, total uint
	for line := range strings.SplitSeq(nodeinfo, "\n") {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "CPU(s)":
			_, _ = fmt.Sscanf(strings.TrimSpace(value), "%d", &cpus)
		case "Memory size":
			_, _ = fmt.Sscanf(strings.TrimSpace(value), "%d KiB", &kib)
		}
	}
	for line := range strings.SplitSeq(nodememstats, "\n") {
		key, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(key) == "total" {
			_, _ = fmt.Sscanf(strings.TrimSpace(value), "%d KiB", &total)
		}
	}
	return cpus, max(kib, total) / 1024
}
