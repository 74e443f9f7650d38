// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package virsh

import (
	"regexp"
	"slices"
	"strings"
)

// rule gives a text its reason. verbs restricts it to commands that begin with one of these words.
type rule struct {
	pattern *regexp.Regexp
	verbs   []string
	reason  Reason
}

func on(reason Reason, pattern string, verbs ...string) rule {
	return rule{pattern: regexp.MustCompile(pattern), verbs: verbs, reason: reason}
}

// rules are tried in order; the first that matches wins. The order within matters: what says that the daemon is not there
// comes first, so that it is never taken for "not found", and a general text comes after the particular one that contains it.
var rules = []rule{
	// The connection. These are of virsh's own half.
	on(VirshMissing, regexp.QuoteMeta(missingMarker)),
	on(LibvirtUnavailable, `failed to connect to the hypervisor`),
	on(LibvirtUnavailable, `(?m)^Disconnected from `),
	on(LibvirtUnavailable, `client socket is closed`),
	on(LibvirtUnavailable, `Failed to connect socket to '[^']*/libvirt`),
	on(LibvirtUnavailable, `Failed to connect socket to '[^']*/virt(qemu|storage|network|log)d`),
	on(LibvirtUnavailable, `Failed to connect socket to '[^']*/virtlogd-sock'`),
	on(LibvirtUnavailable, `no connection driver available`),
	on(LibvirtUnavailable, `Unable to get system bus connection`),
	on(PermissionDenied, `operation forbidden: read only access`),

	// What already is as it should be.
	on(AlreadyActive, `Domain is already active`),
	on(AlreadyActive, `is already active`),
	on(StillActive, `is still active`),
	on(NotActive, `domain is not running`),
	on(PoolInactive, `storage pool '.*' containing volume '.*' is not active`),
	on(NotActive, `storage pool '.*' is not active`, "pool-destroy"),
	on(PoolInactive, `storage pool '.*' is not active`),

	// What is there under that name.
	on(DomainExists, `domain '.*' (already exists|is already defined) with uuid`),
	on(PoolExists, `pool '.*' already exists with uuid`),
	on(PoolConflict, `Storage source conflict with pool`),
	on(VolumeExists, `storage volume '.*' exists already`),

	// Room.
	on(NoSpace, `No space left on device`),
	on(InsufficientMemory, `cannot set up guest memory`),
	on(InsufficientMemory, `Cannot allocate memory`),

	// What a start needs.
	on(BridgeNotFound, `Cannot get interface MTU on '.*': No such device`),
	on(BridgeNotFound, `failed to get mtu of bridge`),
	on(BridgeHelperFailed, `failed to communicate with bridge helper`),
	on(NetworkNotFound, `Network not found`),
	on(NetworkNotFound, `failed to get network`),
	on(FirmwareNotFound, `unable to find any master var store for loader`),
	on(FirmwareNotFound, `Unable to find any firmware`),
	on(FirmwareNotFound, `(?i)Unable to find '?(efi|uefi)'? firmware`),
	on(VirtTypeUnsupported, `does not support virt type`),
	on(VirtTypeUnsupported, `the accel '.*' is not supported`),
	on(MachineTypeUnsupported, `does not support machine type`),
	on(MachineTypeUnsupported, `the machine '.*' is not supported`),
	on(ImageInUse, `Failed to get "(write|shared|consistent read)" lock`),
	on(ImageInvalid, `Image is not in \w+ format`),

	// What is not there. virsh's own half first; a daemon that speaks another language leaves it as it is.
	on(PoolNotFound, `failed to get pool`),
	on(PoolNotFound, `Storage pool not found`),
	on(VolumeNotFound, `failed to get vol`),
	on(VolumeNotFound, `Storage volume not found`),
	on(DomainNotFound, `failed to get domain`),
	on(FileNotFound, `No such file or directory`),
	on(PermissionDenied, `Permission denied`),

	on(InvalidDefinition, `XML document failed to validate`),
	on(InvalidDefinition, `\(\w+_definition\):\d+:`),
	on(InvalidDefinition, `XML error`),
	on(InvalidDefinition, `unknown command`),
	on(InvalidDefinition, `command '.*' requires`),
	on(InvalidDefinition, `unsupported configuration`),
	on(InvalidDefinition, `invalid argument`),
}

// classify turns what virsh wrote to standard error into an error.
func classify(verb, stderr string) *Error {
	message := clean(stderr)
	e := &Error{Reason: Unknown, Command: verb, Message: strings.Join(strings.Fields(message), " ")}
	for _, r := range rules {
		if r.applies(verb) && r.pattern.MatchString(message) {
			e.Reason = r.reason
			break
		}
	}
	return e
}

func (r rule) applies(verb string) bool {
	if len(r.verbs) == 0 {
		return true
	}
	return slices.Contains(r.verbs, verb)
}

// clean removes virsh's prefix from each line.
func clean(stderr string) string {
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(strings.TrimSpace(line), "error: ")
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}
