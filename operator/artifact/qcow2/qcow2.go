// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package qcow2 judges the header of a qcow2 image before any tool of QEMU opens the file. An image may name other files of the host, a backing
// file or an external data file, and a tool that opens such an image opens those too.
package qcow2

import (
	"encoding/binary"
	"errors"
	"io"
	"math/bits"
	"os"
	"syscall"

	"github.com/caplv/caplv/operator/artifact/fault"
)

const (
	magic        = 0x514649fb // "QFI" and 0xfb.
	headerSize   = 104
	version2Size = 72

	dirty           = 1 << 0
	corrupt         = 1 << 1
	externalData    = 1 << 2
	compressionType = 1 << 3
	extendedL2      = 1 << 4
	accepted        = dirty | compressionType | extendedL2

	l1EntrySize       = 8
	snapshotEntrySize = 40
)

// VirtualSize is the size in bytes that a guest sees. The error has the reason ImageInvalid when the image must not be used.
func VirtualSize(path string) (uint64, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	header := make([]byte, headerSize)
	n, err := io.ReadFull(file, header)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, err
	}
	return Judge(header[:n], uint64(max(0, info.Size())))
}

// header is the part of a header that both versions have, in its order.
type header struct {
	Magic, Version                   uint32
	Backing                          uint64
	BackingLength, ClusterBits       uint32
	Size                             uint64
	Encryption, L1Entries            uint32
	L1, Refcounts                    uint64
	RefcountClusters, SnapshotsCount uint32
	SnapshotTable                    uint64
}

// Judge returns the virtual size of an image with this beginning, of up to 104 bytes, and this size of the file.
func Judge(beginning []byte, fileSize uint64) (uint64, error) {
	if len(beginning) < 4 || binary.BigEndian.Uint32(beginning) != magic {
		return 0, refused("it is not a qcow2 image (its first bytes are not those of qcow2)")
	}
	var h header
	if _, err := binary.Decode(beginning, binary.BigEndian, &h); err != nil {
		return 0, refused("its header is cut short")
	}
	switch {
	case h.Version != 2 && h.Version != 3:
		return 0, refused("its version of qcow2 is %d, and only 2 and 3 are known", h.Version)
	case h.Backing != 0:
		return 0, refused("it has a backing file; flatten it with qemu-img convert first")
	case h.Encryption != 0:
		return 0, refused("it is encrypted")
	case h.Version == 3 && len(beginning) < headerSize:
		return 0, refused("its header is cut short")
	}
	if h.Version == 3 {
		if err := judgeFeatures(binary.BigEndian.Uint64(beginning[version2Size:])); err != nil {
			return 0, err
		}
	}
	if h.ClusterBits < 9 || h.ClusterBits > 21 {
		return 0, refused("its cluster size is outside of 512 bytes to 2 MiB")
	}
	for _, table := range []struct {
		name           string
		offset, length uint64
	}{
		{"L1 table", h.L1, uint64(h.L1Entries) * l1EntrySize},
		{"refcount table", h.Refcounts, uint64(h.RefcountClusters) << h.ClusterBits},
		{"snapshot table", h.SnapshotTable, uint64(h.SnapshotsCount) * snapshotEntrySize},
	} {
		end, carry := bits.Add64(table.offset, table.length, 0)
		if (carry != 0 || end > fileSize) && (table.name != "snapshot table" || h.SnapshotsCount > 0) {
			return 0, refused("its %s lies outside of the file; the file is cut short or not an image", table.name)
		}
	}
	return h.Size, nil
}

func judgeFeatures(incompatible uint64) error {
	switch {
	case incompatible&externalData != 0:
		return refused("it has an external data file")
	case incompatible&corrupt != 0:
		return refused("it is marked as corrupt")
	case incompatible&^accepted != 0:
		return refused("it needs features that are not known here (bits %#x)", incompatible&^accepted)
	}
	return nil
}

func refused(format string, args ...any) error {
	err := fault.New(fault.ImageInvalid, fault.Location, format, args...)
	err.Message = "the image must not be used: " + err.Message
	return err
}
