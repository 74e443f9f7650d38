// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package virsh

import (
	"context"
	"fmt"
	"strings"
)

// Observe implements Client. Listings decide what exists; the dumps that follow in the same round trip are only believed
// for what is listed.
func (s *Shell) Observe(ctx context.Context, query Query) (Observation, error) {
	b := &batch{}
	domains := b.add(cmd("list", "--all --name"))
	dump := b.add(cmd("dumpxml", "--inactive", query.Domain))
	state := b.add(cmd("domstate", "--reason", query.Domain))
	pools := b.add(cmd("pool-list", "--all --name"))
	activePools := b.add(cmd("pool-list", "--name"))
	poolDumps := make([]int, len(query.Pools))
	for i, name := range query.Pools {
		poolDumps[i] = b.add(cmd("pool-dumpxml", "", name))
	}
	volumeDumps := make([]int, len(query.Volumes))
	for i, ref := range query.Volumes {
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
		obs.Domain = info
	}
	for i, name := range query.Pools {
		if b.listed(pools, name) {
			obs.Pools[name] = PoolInfo{Active: b.listed(activePools, name), XML: b.text(poolDumps[i])}
		}
	}
	for i, ref := range query.Volumes {
		if !obs.Pools[ref.Pool].Active {
			continue
		}
		if xml, ok := b.optional(volumeDumps[i], VolumeNotFound); ok {
			obs.Volumes[ref] = xml
		}
	}
	for _, name := range query.Networks {
		if b.listed(networks, name) {
			obs.Networks[name] = b.listed(activeNetworks, name)
		}
	}
	return obs, b.err
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

// optional is the output of a command that may fail with this reason, which is then no error.
func (b *batch) optional(i int, reason Reason) (string, bool) {
	err := b.outputs[i].failure(b.commands[i])
	if ReasonOf(err) == reason {
		return "", false
	}
	if err != nil && b.err == nil {
		b.err = err
	}
	return b.outputs[i].stdout, err == nil
}

// listed says whether the output of a listing has this name on a line of its own.
func (b *batch) listed(i int, name string) bool {
	for line := range strings.SplitSeq(b.text(i), "\n") {
		if strings.TrimRight(line, " ") == name {
			return name != ""
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
	capabilities := b.add(cmd("domcapabilities", "--virttype", virtType))
	outputs, err := s.read(ctx, b.commands...)
	if err != nil {
		return Hypervisor{}, err
	}
	b.outputs = outputs
	h := Hypervisor{}
	for line := range strings.SplitSeq(b.text(version), "\n") {
		if v, ok := strings.CutPrefix(line, "Using library: libvirt "); ok {
			h.LibvirtVersion = strings.TrimSpace(v)
		}
		if v, ok := strings.CutPrefix(line, "Running hypervisor: "); ok {
			h.HypervisorVersion = v[strings.LastIndexByte(v, ' ')+1:]
		}
	}
	h.CPUs, h.MemoryMiB = parseSize(b.text(info), b.text(memory))
	_ = b.text(capabilities)
	if ReasonOf(b.err) == InvalidDefinition {
		b.err = &Error{Reason: VirtTypeUnsupported, Message: b.err.Error()}
	}
	if b.err == nil && (h.CPUs == 0 || h.MemoryMiB == 0) {
		b.err = &Error{Reason: Unknown, Command: "nodeinfo", Message: "the host does not tell its CPUs and memory"}
	}
	return h, b.err
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
