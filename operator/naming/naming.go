// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package naming makes the one name that a machine has everywhere: its hostname, its Node, its domain on the host, and
// what is derived from that.
package naming

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	// MaxLength is the length of a DNS label, in bytes.
	MaxLength = 63

	// SeedFile is the name of the cloud-init seed, an ISO 9660 image for the NoCloud datasource, in a machine's directory
	// on the host.
	SeedFile = "seed.iso"

	hashLength = 10
	// hashSeparator cannot occur before the last part of a plain name, because no Kubernetes name ends with a dash.
	hashSeparator = "--"
)

// Machine returns the name of a machine: NAMESPACE-CLUSTER-MACHINE, which is a DNS label of at most 63 characters and
// belongs to no other machine.
//
// The plain form is used where it can be read back in one way only, that is, where neither namespace nor machine holds
// a dash. Every other name, and one that is too long or holds a dot, is cut if need be and gets a digest of the
// three parts behind a double dash.
func Machine(namespace, cluster, machine string) string {
	plain := namespace + "-" + cluster + "-" + machine
	if len(plain) <= MaxLength && !strings.Contains(namespace, "-") && !strings.Contains(machine, "-") && !strings.Contains(plain, ".") {
		return plain
	}
	digest := sha256.Sum256([]byte(namespace + "/" + cluster + "/" + machine))
	suffix := hashSeparator + hex.EncodeToString(digest[:])[:hashLength]
	stem := strings.ReplaceAll(plain, ".", "-")
	if len(stem) > MaxLength-len(suffix) {
		stem = stem[:MaxLength-len(suffix)]
	}
	return strings.TrimRight(stem, "-") + suffix
}

// RootVolume returns the name of the root disk's volume of the machine called name: NAME-root.qcow2.
func RootVolume(name string) string { return name + "-root.qcow2" }

// DataVolume returns the name of the volume of an additional disk of the machine called name: NAME.DISK.qcow2.
//
// The dot keeps it apart from every other volume: the name of a machine and the name of a disk hold none. With a dash,
// a disk called root would be the root disk, and disk b-c of machine a would be disk c of machine a-b.
func DataVolume(name, disk string) string { return name + "." + disk + ".qcow2" }
