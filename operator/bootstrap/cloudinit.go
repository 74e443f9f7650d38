// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"strings"
)

// volumeLabel is what cloud-init's NoCloud datasource looks for.
const volumeLabel = "cidata"

// maxInstanceID bounds a directory's name in the guest.
const maxInstanceID = 128

// CloudInit returns an ISO 9660 image for cloud-init's NoCloud datasource. It holds data as user-data, byte for byte and in any
// of cloud-init's formats, and the identity:
//
//   - meta-data: instance-id, local-hostname, hostname and provider-id; a template (## template: jinja) finds the last as
//     {{ ds.meta_data.provider_id }}.
//   - network-config: version 2, without DHCP, for the interface with the MAC address.
//   - vendor-data: the drop-in of kubelet.service with KUBELET_PROVIDERID, which only a kubelet that reads it notices.
//
// The same input gives the same bytes.
//
// Every error is an *Error, but for those of a machine without room for an empty temporary file.
func CloudInit(data []byte, id Identity) ([]byte, error) {
	if err := id.validate(); err != nil {
		return nil, err
	}
	if err := id.validateInstance(); err != nil {
		return nil, err
	}
	if err := checkUserData(data); err != nil {
		return nil, err
	}
	return isoImage(volumeLabel, []isoFile{
		{"meta-data", id.metaData()},
		{"network-config", id.Network.networkConfig()},
		{"user-data", data},
		{"vendor-data", []byte(vendorData(id.ProviderID))},
	})
}

// validateInstance checks what only cloud-init needs. It makes a directory of the instance's ID.
func (id Identity) validateInstance() error {
	if id.InstanceID == "" || len(id.InstanceID) > maxInstanceID || !printable(id.InstanceID) || strings.ContainsAny(id.InstanceID, "/ ") {
		return invalidIdentity("the instance ID %q is not 1 to %d printable characters without slash and space", id.InstanceID, maxInstanceID)
	}
	return nil
}

// checkUserData refuses what cloud-init would ignore with no more than a line in the guest's log. What it does not know is left
// to cloud-init.
func checkUserData(data []byte) error {
	content := bytes.TrimSpace(data)
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		start, err := gunzipStart(data)
		if err != nil {
			return invalidData("the bootstrap data is compressed and cannot be decompressed: it is cut off or damaged; store it again in full")
		}
		content = bytes.TrimSpace(start)
	}
	switch {
	case len(content) == 0:
		return invalidData("the bootstrap data is empty; put user-data for cloud-init into the bootstrap data Secret")
	case content[0] == '{' && bytes.Contains(content, []byte(`"ignition`)):
		return invalidData("the bootstrap data is an Ignition config, which cloud-init does not read; " +
			"use the format ignition for it, or have the bootstrap provider produce cloud-config")
	case content[0] == '{':
		return invalidData("the bootstrap data is JSON, which cloud-init ignores; it needs user-data that begins with #cloud-config, " +
			"#! or another of its markers")
	case bytes.HasPrefix(content, []byte("variant:")):
		return invalidData("the bootstrap data is a Butane config, which cloud-init ignores; transpile it and use the format ignition for it")
	}
	return nil
}

// gunzipStart returns the beginning of what data decompresses to, after reading it to the end.
func gunzipStart(data []byte) ([]byte, error) {
	const enough, limit = 4 << 10, 256 << 20
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	start, err := io.ReadAll(io.LimitReader(reader, enough))
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(reader, limit))
	return start, err
}

// metaData is JSON, and so YAML. In YAML's own style some strings would be numbers to cloud-init's parser.
func (id Identity) metaData() []byte {
	return indented(map[string]string{
		"instance-id":    id.InstanceID,
		"local-hostname": id.Hostname,
		"hostname":       id.Hostname,
		"provider-id":    id.ProviderID,
	})
}

// vendorData is a script that cloud-init runs early at every boot, before it starts what the user-data asks for. It is no
// cloud-config with write_files: cloud-init takes that list from the user-data alone if there is one, as there is in all that
// the kubeadm bootstrap provider writes. A script is run besides whatever the user-data has, and vendor_data: {enabled: false}
// in the user-data switches it off.
func vendorData(providerID string) string {
	dropin := providerIDDropin(providerID)
	return `#cloud-boothook
#!/bin/sh
# Gives kubelet.service the provider ID of this machine, for kubelets that are started with it.
[ -d /run/systemd/system ] || exit 0
umask 022
mkdir -p '` + dropinPath[:strings.LastIndex(dropinPath, "/")] + `'
cat >'` + dropinPath + `' <<'END'
` + dropin + `END
systemctl daemon-reload || true
`
}

// indented returns what consists of strings, booleans, lists and structs as JSON to be read by people.
func indented(value any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		panic(err)
	}
	return out.Bytes()
}
