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
	on(LibvirtUnavailable, `(?i)failed to (re)?connect to the hypervisor`),
	on(LibvirtUnavailable, `(?m)^Disconnected from `),
	on(LibvirtUnavailable, `(?m)^Reconnected to the hypervisor`),
	on(LibvirtUnavailable, `client socket is closed`),
	on(LibvirtUnavailable, `Cannot (recv|write) data: `),
	on(LibvirtUnavailable, `End of file while reading data`),
	on(LibvirtUnavailable, `connection closed due to keepalive timeout`),
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
	on(VolumeExists, `storage volume name '.*' already in use`),
	on(VolumeBusy, `volume '.*' is still being allocated`),
	on(VolumeBusy, `volume '.*' is still in use`),
	on(VolumeBusy, `pool '.*' has asynchronous jobs running`),

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
	on(optionUnknown, `command '.*' doesn't support option `),
	on(InvalidDefinition, `unsupported configuration`),
	on(InvalidDefinition, `invalid argument`),
}

// classify turns what virsh wrote to standard error into an error.
func classify(verb, stderr string) *Error {
	message := clean(stderr)
	e := &Error{Reason: Unknown, Command: verb, Message: oneLine(message)}
	for _, r := range rules {
		if r.applies(verb) && r.pattern.MatchString(message) {
			e.Reason = r.reason
			break
		}
	}
	return e
}

func (r rule) applies(verb string) bool {
	return len(r.verbs) == 0 || slices.Contains(r.verbs, verb)
}

// logLine is what libvirt's library writes to standard error on its own account, also when the command succeeds. Its lines
// of level error are left to be complained about.
var logLine = regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+\+\d+: \d+: (debug|info|warning) : `)

// clean returns what virsh complained about, without its prefix on each line: nothing for a command that succeeded.
func clean(stderr string) string {
	var kept []string
	for line := range strings.SplitSeq(stderr, "\n") {
		line = strings.TrimSpace(line)
		if logLine.MatchString(line) {
			continue
		}
		// An error whose text begins with a line break leaves the prefix on a line of its own.
		if line = strings.TrimPrefix(line+" ", "error: "); strings.TrimSpace(line) != "" {
			kept = append(kept, strings.TrimSpace(line))
		}
	}
	return strings.Join(kept, "\n")
}

// maxMessage bounds a message, in bytes: QEMU's complaints hold whole command lines.
const maxMessage = 1024

// oneLine makes a text fit for a condition.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxMessage {
		text = text[:maxMessage] + " ..."
	}
	return strings.ToValidUTF8(text, "?")
}
