// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

// Conditions of a LibvirtMachine and their reasons. A reason that a LibvirtHost also has, such as Unreachable, is
// declared there.
const (
	// MachineReadyCondition is True while the domain runs. When it is False, its reason is that of the first of the
	// conditions below that holds the machine up, so that one column of "kubectl get" tells the story.
	MachineReadyCondition = clusterv1.ReadyCondition

	// RunningReason surfaces on Ready and DomainRunning while the domain runs.
	RunningReason = "Running"
	// DeletingReason surfaces on Ready while the machine is being removed from its host.
	DeletingReason = "Deleting"
	// ProvisioningReason surfaces while the machine is being created on its host.
	ProvisioningReason = "Provisioning"

	// WaitingForOwnerMachineReason surfaces on Ready until Cluster API has set the owning Machine.
	WaitingForOwnerMachineReason = "WaitingForOwnerMachine"
	// WaitingForClusterInfrastructureReason surfaces on Ready until the Cluster's infrastructure is provisioned.
	WaitingForClusterInfrastructureReason = "WaitingForClusterInfrastructure"

	// HostAvailableCondition is True while the machine's host can be used.
	HostAvailableCondition = "HostAvailable"
	// HostAvailableReason surfaces while the host can be used.
	HostAvailableReason = "HostAvailable"
	// HostNotFoundReason surfaces when no LibvirtHost has the name of spec.hostRef.
	HostNotFoundReason = "HostNotFound"
	// HostNotReadyReason surfaces while the LibvirtHost is not Ready; the message repeats its reason.
	HostNotReadyReason = "HostNotReady"
	// HostInUseReason surfaces while another machine has claimed the host; the message says which, and whether it is
	// being deleted.
	HostInUseReason = "HostInUse"
	// HostHasLeftoversReason surfaces while the host may still have something of a machine that was abandoned; the message says which.
	HostHasLeftoversReason = "HostHasLeftovers"

	// BootstrapDataAvailableCondition is True when the bootstrap data was read and prepared.
	BootstrapDataAvailableCondition = "BootstrapDataAvailable"
	// BootstrapDataAvailableReason surfaces when the bootstrap data was read and prepared.
	BootstrapDataAvailableReason = "BootstrapDataAvailable"
	// WaitingForBootstrapDataReason surfaces until the Machine names a Secret and the Secret exists.
	WaitingForBootstrapDataReason = "WaitingForBootstrapData"
	// InvalidBootstrapDataReason surfaces when the bootstrap data cannot be used. No domain is started with it.
	InvalidBootstrapDataReason = "InvalidBootstrapData"

	// DomainRunningCondition is True while the domain runs.
	DomainRunningCondition = "DomainRunning"
	// DomainAlreadyExistsReason surfaces when the host has a domain of the machine's name that is not the machine's.
	DomainAlreadyExistsReason = "DomainAlreadyExists"
	// VolumeAlreadyExistsReason surfaces when a volume of the machine's root disk exists that is not the machine's.
	VolumeAlreadyExistsReason = "VolumeAlreadyExists"
	// PoolAlreadyExistsReason surfaces when a storage pool of the machine's name exists that is not the machine's.
	PoolAlreadyExistsReason = "PoolAlreadyExists"
	// DirectoryAlreadyExistsReason surfaces when something else has the place of the machine's directory below /run/caplv.
	DirectoryAlreadyExistsReason = "DirectoryAlreadyExists"
	// PoolNotFoundReason surfaces when a storage pool of the spec does not exist on the host.
	PoolNotFoundReason = "PoolNotFound"
	// BaseImageNotFoundReason surfaces when the base image's volume does not exist on the host.
	BaseImageNotFoundReason = "BaseImageNotFound"
	// NetworkNotFoundReason surfaces when the libvirt network does not exist on the host.
	NetworkNotFoundReason = "NetworkNotFound"
	// NetworkInactiveReason surfaces when the libvirt network exists but is not active.
	NetworkInactiveReason = "NetworkInactive"
	// NetworkTypeUnsupportedReason surfaces when a session-mode host is asked for a libvirt-managed network.
	NetworkTypeUnsupportedReason = "NetworkTypeUnsupported"
	// BridgeNotFoundReason surfaces when the bridge does not exist on the host.
	BridgeNotFoundReason = "BridgeNotFound"
	// InsufficientCapacityReason surfaces when the host has less available than the machine asks for.
	InsufficientCapacityReason = "InsufficientCapacity"
	// CloningDiskReason surfaces while the root disk is being copied from its base image.
	CloningDiskReason = "CloningDisk"
	// RootDiskTooSmallReason surfaces when rootDisk.size is below the virtual size of the base image.
	RootDiskTooSmallReason = "RootDiskTooSmall"
	// NoSpaceReason surfaces when a storage pool or tmpfs of the host is full.
	NoSpaceReason = "NoSpace"
	// HostPermissionDeniedReason surfaces when the host's daemon, or QEMU, may not use a file or device; the message names it.
	HostPermissionDeniedReason = "HostPermissionDenied"
	// HostFileNotFoundReason surfaces when a file that the domain or its storage pool needs is not on the host; the message
	// names it.
	HostFileNotFoundReason = "HostFileNotFound"
	// FirmwareNotFoundReason surfaces when the host has no UEFI firmware that fits, or none at the path of its spec.
	FirmwareNotFoundReason = "FirmwareNotFound"
	// MachineTypeUnsupportedReason surfaces when the host's QEMU does not know the machine type.
	MachineTypeUnsupportedReason = "MachineTypeUnsupported"
	// ImageInUseReason surfaces when another process on the host has the machine's disk open.
	ImageInUseReason = "ImageInUse"
	// ImageInvalidReason surfaces when a volume's content is not of the format that it should have.
	ImageInvalidReason = "ImageInvalid"
	// PoolInactiveReason surfaces when a storage pool of the spec is not active and could not be started.
	PoolInactiveReason = "PoolInactive"
	// PoolConflictReason surfaces when another storage pool of the host has the directory of the machine's pool.
	PoolConflictReason = "PoolConflict"
	// VolumeNotFoundReason surfaces when a volume that a step needs is not on the host.
	VolumeNotFoundReason = "VolumeNotFound"
	// VolumeBusyReason surfaces while the host copies to or from a volume, and nothing else can be done with it.
	VolumeBusyReason = "VolumeBusy"
	// InvalidDefinitionReason surfaces when the host's libvirt does not accept a definition; the message says what it dislikes.
	InvalidDefinitionReason = "InvalidDefinition"
	// ProvisioningFailedReason surfaces when a step failed for a reason that CAPLV has no name for; the message holds it.
	ProvisioningFailedReason = "ProvisioningFailed"
	// DomainNotRunningReason surfaces when a domain that was provisioned does not run any more; the message says how it ended.
	DomainNotRunningReason = "DomainNotRunning"
	// DomainMissingReason surfaces when a domain that was provisioned is not defined any more.
	DomainMissingReason = "DomainMissing"
	// StateUnknownReason surfaces when the host cannot be asked; the domain may well run.
	StateUnknownReason = "StateUnknown"

	// CleanupStalledCondition is True while something of a deleted machine cannot be removed from its host. Its reason
	// is the cause, such as Unreachable.
	CleanupStalledCondition = "CleanupStalled"
	// CleanupProceedingReason surfaces on the negative condition when the cleanup goes on.
	CleanupProceedingReason = "CleanupProceeding"
	// CleanupFailedReason surfaces when the host refused a step of the cleanup; the message holds its words.
	CleanupFailedReason = "CleanupFailed"

	// BaseImageStagedCondition says whether the cluster's base image is on the host.
	BaseImageStagedCondition = "BaseImageStaged"
	// BaseImageStagingReason surfaces while the image is being copied to the host.
	BaseImageStagingReason = "BaseImageStaging"
	// BaseImageStagedReason surfaces when the image's volume is present.
	BaseImageStagedReason = "BaseImageStaged"
	// BaseImageFetchFailedReason surfaces when the operator could not fetch the image; the message says what the source answered.
	BaseImageFetchFailedReason = "BaseImageFetchFailed"
	// BaseImageStagingFailedReason surfaces when the run that brings the image to the host failed; the message names its task.
	BaseImageStagingFailedReason = "BaseImageStagingFailed"
	// HostNotManagedReason surfaces when the image is not on the host and the operator may not bring it: its LibvirtHost has no spec.bootstrap, or one
	// whose mode is check.
	HostNotManagedReason = "HostNotManaged"
)
