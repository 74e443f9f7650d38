// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"errors"

	infrav1 "github.com/caplv/caplv/api/v1alpha1"
	"github.com/caplv/caplv/operator/hostconn"
	"github.com/caplv/caplv/operator/hostctl"
	"github.com/caplv/caplv/operator/session"
	"github.com/caplv/caplv/operator/virsh"
)

// configError is a mistake in a LibvirtHost or its Secret.
type configError struct{ reason, message string }

func (e *configError) Error() string { return e.message }

// NewConfigError returns an error that Explain turns into this reason and message.
func NewConfigError(reason, message string) error {
	return &configError{reason: reason, message: message}
}

var connReasons = map[hostconn.Reason]string{
	hostconn.Unauthorized:    infrav1.UnauthorizedReason,
	hostconn.HostKeyMismatch: infrav1.HostKeyMismatchReason,
	hostconn.Unreachable:     infrav1.UnreachableReason,
	hostconn.Closed:          infrav1.UnreachableReason,
	hostconn.Timeout:         infrav1.TimeoutReason,
	hostconn.InvalidKey:      infrav1.InvalidPrivateKeyReason,
}

var virshReasons = map[virsh.Reason]string{
	virsh.VirshMissing:           infrav1.VirshMissingReason,
	virsh.LibvirtUnavailable:     infrav1.LibvirtUnavailableReason,
	virsh.VirtTypeUnsupported:    infrav1.VirtTypeUnsupportedReason,
	virsh.MachineTypeUnsupported: infrav1.MachineTypeUnsupportedReason,
	virsh.FirmwareNotFound:       infrav1.FirmwareNotFoundReason,
	virsh.InvalidDefinition:      infrav1.InvalidDefinitionReason,
	virsh.PoolNotFound:           infrav1.PoolNotFoundReason,
	virsh.PoolInactive:           infrav1.PoolInactiveReason,
	virsh.PoolConflict:           infrav1.PoolConflictReason,
	virsh.PoolExists:             infrav1.PoolAlreadyExistsReason,
	virsh.VolumeNotFound:         infrav1.VolumeNotFoundReason,
	virsh.VolumeExists:           infrav1.VolumeAlreadyExistsReason,
	virsh.VolumeBusy:             infrav1.VolumeBusyReason,
	virsh.DomainNotFound:         infrav1.DomainMissingReason,
	virsh.DomainExists:           infrav1.DomainAlreadyExistsReason,
	virsh.NetworkNotFound:        infrav1.NetworkNotFoundReason,
	virsh.BridgeNotFound:         infrav1.BridgeNotFoundReason,
	virsh.ImageInUse:             infrav1.ImageInUseReason,
	virsh.ImageInvalid:           infrav1.ImageInvalidReason,
	virsh.FileNotFound:           infrav1.HostFileNotFoundReason,
	virsh.PermissionDenied:       infrav1.HostPermissionDeniedReason,
	virsh.NoSpace:                infrav1.NoSpaceReason,
	virsh.InsufficientMemory:     infrav1.InsufficientCapacityReason,
}

// Explain turns an error of Connect or of a Host's method into the reason and the message of a condition. An error that it has
// no name for keeps its own words under the fallback reason.
func Explain(err error, fallback string) (reason, message string) {
	if config, ok := errors.AsType[*configError](err); ok {
		return config.reason, config.message
	}
	if missing, ok := errors.AsType[*session.Error](err); ok {
		if missing.OnlyBridges() {
			return infrav1.BridgeNotFoundReason, err.Error()
		}
		return infrav1.SessionModeMisconfiguredReason, err.Error()
	}
	if r, ok := connReasons[hostconn.ReasonOf(err)]; ok {
		return r, err.Error()
	}
	if virsh.ReasonOf(err) == virsh.BridgeHelperFailed {
		return infrav1.SessionModeMisconfiguredReason, err.Error() +
			"; see whether the account may use the bridge: the ACL that the text names, or /etc/qemu/bridge.conf, has to allow it"
	}
	if r, ok := virshReasons[virsh.ReasonOf(err)]; ok {
		return r, err.Error()
	}
	if helper, ok := errors.AsType[*hostctl.Error](err); ok {
		switch helper.Code {
		case hostctl.CodeHelperMissing, hostctl.CodeHelperNotPermitted, hostctl.CodeHelperOutdated:
			return infrav1.HelperUnavailableReason, err.Error()
		case hostctl.CodeNoSpace:
			return infrav1.NoSpaceReason, err.Error()
		case hostctl.CodeNotOurs:
			return infrav1.DirectoryAlreadyExistsReason, err.Error() + "; move it away on the host"
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return infrav1.TimeoutReason, "the host did not answer in time: " + err.Error()
	}
	return fallback, err.Error()
}
