// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"encoding/xml"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"
)

// PoolXML returns the definition of a storage pool over the directory targetPath. The directory must exist when the pool
// is started.
func PoolXML(name, poolUUID, targetPath string) (string, error) {
	if err := errors.Join(text("name", name), text("target path", targetPath)); err != nil {
		return "", fmt.Errorf("storage pool %q: %w", name, err)
	}
	if _, err := uuid.Parse(poolUUID); err != nil {
		return "", fmt.Errorf("storage pool %q: the UUID %q: %w", name, poolUUID, err)
	}
	pool := &libvirtxml.StoragePool{
		Type: "dir", Name: name, UUID: poolUUID,
		Target: &libvirtxml.StoragePoolTarget{Path: targetPath},
	}
	out, err := pool.Marshal()
	if err != nil {
		return "", fmt.Errorf("storage pool %q: %w", name, err)
	}
	return out + "\n", nil
}

// VolumeSpec describes a volume in qcow2 format.
type VolumeSpec struct {
	Name string
	// CapacityBytes is the size that the guest sees. A copy gets the original's size, whatever is said here, and is resized
	// afterwards.
	CapacityBytes uint64
	// Backing is the image that unwritten blocks are read from; nil for an empty volume and for a copy.
	Backing *Backing
}

// Backing is the image below a volume.
type Backing struct {
	// Path is the image's path on the host.
	Path string
	// Format is the image's format. QEMU does not guess it, because the content of a raw image could pass for any other.
	Format string
}

// VolumeXML returns the definition of a volume. It has no preallocated blocks.
func VolumeXML(spec VolumeSpec) (string, error) {
	if err := spec.validate(); err != nil {
		return "", fmt.Errorf("volume %q: %w", spec.Name, err)
	}
	volume := &libvirtxml.StorageVolume{
		Name:     spec.Name,
		Capacity: &libvirtxml.StorageVolumeSize{Unit: "bytes", Value: spec.CapacityBytes},
		// Without this, libvirt would allocate the whole capacity.
		Allocation: &libvirtxml.StorageVolumeSize{Unit: "bytes", Value: 0},
		Target: &libvirtxml.StorageVolumeTarget{
			Format: &libvirtxml.StorageVolumeTargetFormat{Type: "qcow2"},
			// libvirt's default is the format of QEMU before 1.1, which cannot give discarded blocks back under a backing
			// image.
			Compat: "1.1",
		},
	}
	if spec.Backing != nil {
		volume.BackingStore = &libvirtxml.StorageVolumeBackingStore{
			Path:   spec.Backing.Path,
			Format: &libvirtxml.StorageVolumeTargetFormat{Type: spec.Backing.Format},
		}
	}
	out, err := volume.Marshal()
	if err != nil {
		return "", fmt.Errorf("volume %q: %w", spec.Name, err)
	}
	return out + "\n", nil
}

func (s VolumeSpec) validate() error {
	if err := text("name", s.Name); err != nil {
		return err
	}
	if strings.Contains(s.Name, "/") {
		return errors.New("a volume's name cannot hold a slash")
	}
	if s.CapacityBytes == 0 {
		return errors.New("the capacity is 0 bytes")
	}
	if s.Backing != nil {
		return errors.Join(text("backing image's path", s.Backing.Path), text("backing image's format", s.Backing.Format))
	}
	return nil
}

// ObservedPool is what a storage pool's definition on a host says.
type ObservedPool struct {
	Name string
	UUID string
	// TargetPath is the pool's directory or device directory; empty for pools that have none.
	TargetPath string
	// AvailableBytes is the room that the pool had when libvirt last looked; 0 when unknown.
	AvailableBytes uint64
}

// ParsePool reads the output of virsh pool-dumpxml. It returns an error only when that is not the XML of a pool with name
// and UUID.
func ParsePool(poolXML string) (ObservedPool, error) {
	var view struct {
		XMLName    xml.Name     `xml:"pool"`
		Name       string       `xml:"name"`
		UUID       string       `xml:"uuid"`
		TargetPath string       `xml:"target>path"`
		Available  quantityView `xml:"available"`
	}
	if err := xml.Unmarshal([]byte(poolXML), &view); err != nil {
		return ObservedPool{}, fmt.Errorf("reading the storage pool's XML: %w", err)
	}
	if view.Name == "" || view.UUID == "" {
		return ObservedPool{}, errors.New("reading the storage pool's XML: it has no name or no UUID")
	}
	seen := ObservedPool{Name: view.Name, UUID: strings.ToLower(strings.TrimSpace(view.UUID)), TargetPath: view.TargetPath}
	seen.AvailableBytes, _ = view.Available.bytes("bytes")
	return seen, nil
}

// ObservedVolume is what a volume's description on a host says.
type ObservedVolume struct {
	Name          string
	Path          string
	CapacityBytes uint64
	// AllocationBytes is what the volume takes up in its pool; 0 when unknown.
	AllocationBytes uint64
	// Format is the format that libvirt found, such as qcow2 or raw; empty for volumes without one.
	Format string
	// BackingPath is the image that unwritten blocks are read from; empty for a volume that stands by itself.
	BackingPath string
}

// ParseVolume reads the output of virsh vol-dumpxml. It returns an error when that is not the XML of a volume with name,
// path and capacity.
func ParseVolume(volumeXML string) (ObservedVolume, error) {
	var view struct {
		XMLName     xml.Name     `xml:"volume"`
		Name        string       `xml:"name"`
		Capacity    quantityView `xml:"capacity"`
		Allocation  quantityView `xml:"allocation"`
		BackingPath string       `xml:"backingStore>path"`
		Target      struct {
			Path   string `xml:"path"`
			Format struct {
				Type string `xml:"type,attr"`
			} `xml:"format"`
		} `xml:"target"`
	}
	if err := xml.Unmarshal([]byte(volumeXML), &view); err != nil {
		return ObservedVolume{}, fmt.Errorf("reading the volume's XML: %w", err)
	}
	capacity, ok := view.Capacity.bytes("bytes")
	if view.Name == "" || view.Target.Path == "" || !ok {
		return ObservedVolume{}, errors.New("reading the volume's XML: it has no name, no path or no capacity")
	}
	allocation, _ := view.Allocation.bytes("bytes")
	return ObservedVolume{
		Name: view.Name, Path: view.Target.Path, CapacityBytes: capacity, AllocationBytes: allocation,
		Format: view.Target.Format.Type, BackingPath: view.BackingPath,
	}, nil
}
