// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package virsh

import "errors"

// Reason is why an operation failed.
type Reason string

// The reasons.
const (
	DomainNotFound         Reason = "DomainNotFound"
	DomainExists           Reason = "DomainExists"
	PoolNotFound           Reason = "PoolNotFound"
	PoolExists             Reason = "PoolExists"
	PoolConflict           Reason = "PoolConflict"
	PoolInactive           Reason = "PoolInactive"
	VolumeNotFound         Reason = "VolumeNotFound"
	VolumeBusy             Reason = "VolumeBusy"
	VolumeExists           Reason = "VolumeExists"
	NetworkNotFound        Reason = "NetworkNotFound"
	BridgeNotFound         Reason = "BridgeNotFound"
	BridgeHelperFailed     Reason = "BridgeHelperFailed"
	AlreadyActive          Reason = "AlreadyActive"
	NotActive              Reason = "NotActive"
	StillActive            Reason = "StillActive"
	NoSpace                Reason = "NoSpace"
	InsufficientMemory     Reason = "InsufficientMemory"
	ImageInUse             Reason = "ImageInUse"
	ImageInvalid           Reason = "ImageInvalid"
	FileNotFound           Reason = "FileNotFound"
	PermissionDenied       Reason = "PermissionDenied"
	VirtTypeUnsupported    Reason = "VirtTypeUnsupported"
	MachineTypeUnsupported Reason = "MachineTypeUnsupported"
	FirmwareNotFound       Reason = "FirmwareNotFound"
	InvalidDefinition      Reason = "InvalidDefinition"
	VirshMissing           Reason = "VirshMissing"
	LibvirtUnavailable     Reason = "LibvirtUnavailable"
	Unknown                Reason = "Unknown"

	// optionUnknown is a virsh that is too old for an option, which operations do without.
	optionUnknown Reason = "OptionUnknown"
)

// Error is a command that failed.
type Error struct {
	Reason Reason
	// Command is the verb; its values are left out.
	Command string
	// Message is what virsh said, in one line.
	Message string
}

func (e *Error) Error() string {
	if e.Command == "" {
		return e.Message
	}
	return "virsh " + e.Command + ": " + e.Message
}

// ReasonOf returns the reason of an error of this package, and "" for any other.
func ReasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return ""
}
