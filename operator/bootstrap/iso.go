// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unicode/utf16"

	"github.com/diskfs/go-diskfs/backend"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
)

// isoFile is a file in the root directory of an image.
type isoFile struct {
	name    string
	content []byte
}

// Positions in an image, from ECMA-119 and the Joliet specification. Numbers are little-endian, and big-endian behind.
const (
	sectorSize = 2048
	// primarySector and jolietSector are the descriptors of the two trees of directories: with names in capitals, and as they are.
	primarySector, jolietSector = 16, 17
	// Within a descriptor.
	volumeSizeAt, rootRecordAt, volumeDatesAt = 80, 156, 813
	// Within the record of a file in a directory.
	extentAt, sizeAt, dateAt, nameLengthAt, nameAt = 2, 10, 18, 32, 33
)

// padding are zeros at the end. Programs that look for a label read more at once than a small file system has, and take an
// image that ends before for one without any.
const padding = 150 * sectorSize

// The dates of every image are those of 2000-01-01 in UTC, so that the same files give the same bytes: creation,
// modification, no expiration, effective; and the short form that records of files have.
const (
	volumeDates = "2000010100000000\x00" + "2000010100000000\x00" + "0000000000000000\x00" + "2000010100000000\x00"
	recordDate  = "\x64\x01\x01\x00\x00\x00\x00"
)

// isoImage returns an ISO 9660 image with Joliet names that holds the files, which are not empty.
//
// go-diskfs takes files only from a directory. Their content may be secret, so what it gets are holes of the same sizes, and
// the content is put into the finished image, which never leaves the memory.
func isoImage(label string, files []isoFile) ([]byte, error) {
	workspace, err := holes(files)
	if err != nil {
		return nil, fmt.Errorf("making the cloud-init image: %w; the operator needs a directory for temporary files "+
			"(/dev/shm, or the one that TMPDIR names)", err)
	}
	defer func() { _ = os.RemoveAll(workspace) }()
	storage := &memory{}
	filesystem, err := iso9660.Create(storage, 0, 0, sectorSize, workspace)
	if err != nil {
		return nil, fmt.Errorf("making the cloud-init image: %w", err)
	}
	if err := filesystem.Finalize(iso9660.FinalizeOptions{Joliet: true, VolumeIdentifier: label}); err != nil {
		return nil, fmt.Errorf("making the cloud-init image: %w", err)
	}
	image := storage.image
	image = image[:sectorSize*binary.LittleEndian.Uint32(image[primarySector*sectorSize+volumeSizeAt:])]
	fixDates(image)
	if err := fill(image, files); err != nil {
		return nil, err
	}
	// Beyond the file system, as mkisofs does it by default.
	return append(image, make([]byte, padding)...), nil
}

// holes makes a directory with a file without content for each of the files, if possible in memory.
func holes(files []isoFile) (string, error) {
	workspace, err := os.MkdirTemp("/dev/shm", "caplv-")
	if err != nil {
		if workspace, err = os.MkdirTemp("", "caplv-"); err != nil {
			return "", err
		}
	}
	for _, file := range files {
		path := filepath.Join(workspace, file.name)
		err := os.WriteFile(path, nil, 0o600)
		if err == nil {
			err = os.Truncate(path, int64(len(file.content)))
		}
		if err != nil {
			_ = os.RemoveAll(workspace)
			return "", err
		}
	}
	return workspace, nil
}

// records yields the records of the root directory that a descriptor names: itself, its parent, its files. A few files have
// records of less than a sector, after which there are zeros.
func records(image []byte, descriptor int) func(yield func(record []byte) bool) {
	return func(yield func([]byte) bool) {
		directory := extent(image, image[descriptor*sectorSize+rootRecordAt:])
		for len(directory) > 0 && directory[0] > 0 {
			length := directory[0]
			if !yield(directory[:length]) {
				return
			}
			directory = directory[length:]
		}
	}
}

// extent returns the content that a record points to.
func extent(image, record []byte) []byte {
	start := sectorSize * int(binary.LittleEndian.Uint32(record[extentAt:]))
	return image[start:][:binary.LittleEndian.Uint32(record[sizeAt:])]
}

// fixDates replaces the dates of the image by constant ones.
func fixDates(image []byte) {
	for _, sector := range []int{primarySector, jolietSector} {
		descriptor := image[sector*sectorSize:]
		copy(descriptor[volumeDatesAt:], volumeDates)
		copy(descriptor[rootRecordAt+dateAt:], recordDate)
		for record := range records(image, sector) {
			copy(record[dateAt:], recordDate)
		}
	}
}

// fill puts the content of the files to where the image has room for it.
func fill(image []byte, files []isoFile) error {
	missing := map[string][]byte{}
	for _, file := range files {
		missing[file.name] = file.content
	}
	for record := range records(image, jolietSector) {
		name := ucs2(record[nameAt:][:record[nameLengthAt]])
		content, ok := missing[name]
		if room := extent(image, record); ok && len(room) == len(content) {
			copy(room, content)
			delete(missing, name)
		}
	}
	if len(missing) > 0 {
		return errors.New("making the cloud-init image: it has no room for one of its files")
	}
	return nil
}

// ucs2 decodes a name of Joliet: big-endian characters of two bytes.
func ucs2(b []byte) string {
	units := make([]uint16, 0, len(b)/2)
	for ; len(b) >= 2; b = b[2:] {
		units = append(units, binary.BigEndian.Uint16(b))
	}
	return string(utf16.Decode(units))
}

// memory is what an image is written to. Making one only ever writes: there is nothing behind the other methods.
type memory struct {
	backend.Storage
	image []byte
}

// Writable returns the memory itself.
func (m *memory) Writable() (backend.WritableFile, error) { return m, nil }

// WriteAt writes anywhere; what is skipped is zero.
func (m *memory) WriteAt(p []byte, offset int64) (int, error) {
	if end := int(offset) + len(p); end > len(m.image) {
		m.image = append(m.image, make([]byte, end-len(m.image))...)
	}
	return copy(m.image[offset:], p), nil
}
