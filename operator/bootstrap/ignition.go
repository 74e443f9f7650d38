// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bootstrap writes a machine's identity into its bootstrap data: hostname, provider ID and the static
// configuration of its network. It knows nothing of hosts or Kubernetes objects.
package bootstrap

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"regexp"
	"slices"

	"github.com/coreos/ignition/v2/config/v3_0"
	types "github.com/coreos/ignition/v2/config/v3_0/types"
	"github.com/coreos/ignition/v2/config/v3_1"
	"github.com/coreos/ignition/v2/config/v3_2"
	"github.com/coreos/ignition/v2/config/v3_3"
	"github.com/coreos/ignition/v2/config/v3_4"
	"github.com/coreos/ignition/v2/config/v3_5"
)

// editors holds the spec versions that can be edited. Each is parsed, merged and validated by Ignition's own code for that
// version, so that the guest's Ignition gets what its author wrote for.
var editors = map[string]editor{
	"3.0.0": editorOf(v3_0.Parse, v3_0.Merge),
	"3.1.0": editorOf(v3_1.Parse, v3_1.Merge),
	"3.2.0": editorOf(v3_2.Parse, v3_2.Merge),
	"3.3.0": editorOf(v3_3.Parse, v3_3.Merge),
	"3.4.0": editorOf(v3_4.Parse, v3_4.Merge),
	"3.5.0": editorOf(v3_5.Parse, v3_5.Merge),
}

// Ignition returns the Ignition config data (JSON, spec 3.0.0 to 3.5.0) with the identity added to it: /etc/hostname, a
// drop-in of kubelet.service with KUBELET_PROVIDERID, and a NetworkManager connection for the interface. What the config
// has at these places is replaced; everything else is kept, except keys that the spec does not know, which Ignition
// ignores. The result is of the same spec version, valid, and the same for the same input.
//
// A config that names further ones in ignition.config.merge keeps them. The guest merges them over this one, and fetches
// them before the connection exists there.
//
// Every error is an *Error.
func Ignition(data []byte, id Identity) ([]byte, error) {
	if err := id.validate(); err != nil {
		return nil, err
	}
	version, err := specVersion(data)
	if err != nil {
		return nil, err
	}
	placeholder, identity := id.configs(version)
	out, err := editors[version](data, placeholder, identity)
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			e.Version = version
		}
		return nil, err
	}
	return out, nil
}

// head is the part of a config that is needed before its version is known.
type head struct {
	Ignition struct {
		Version *string `json:"version"`
		Config  struct {
			Replace struct {
				Source *string `json:"source"`
			} `json:"replace"`
		} `json:"config"`
	} `json:"ignition"`
}

// versionForm is the form of a version that is safe to show.
var versionForm = regexp.MustCompile(`^[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}(-experimental)?$`)

// specVersion returns the version of an Ignition config that can be edited.
func specVersion(data []byte) (string, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return "", invalidData("the bootstrap data is empty; put an Ignition config into the bootstrap data Secret")
	}
	var h head
	if err := json.Unmarshal(data, &h); err != nil {
		return "", notJSON(data, err)
	}
	if h.Ignition.Version == nil || *h.Ignition.Version == "" {
		return "", invalidData("the bootstrap data is JSON without ignition.version; is it an Ignition config? %s", supported())
	}
	version := *h.Ignition.Version
	if !versionForm.MatchString(version) {
		return "", invalidData("ignition.version of the bootstrap data is not a version such as 3.2.0; %s", supported())
	}
	if _, ok := editors[version]; !ok {
		e := &Error{Reason: UnsupportedIgnitionVersion, Version: version, Path: "$.ignition.version"}
		if version[:2] == "2." || version[:2] == "1." {
			e.Message = "the bootstrap data is an Ignition config of spec " + version + ", which is not handled yet; " +
				"convert it to spec 3, or have the bootstrap provider produce that; " + supported()
		} else {
			e.Message = "the bootstrap data is an Ignition config of spec " + version + ", which is not known; " +
				"have it produced for one that is; " + supported()
		}
		return "", e
	}
	if h.Ignition.Config.Replace.Source != nil {
		e := invalidData("ignition.config.replace of the bootstrap data makes the guest discard this config, and the machine's " +
			"identity with it; use ignition.config.merge instead")
		e.Version, e.Path = version, "$.ignition.config.replace"
		return "", e
	}
	return version, nil
}

func supported() string {
	versions := slices.Sorted(maps.Keys(editors))
	return "supported are Ignition configs of spec " + versions[0] + " to " + versions[len(versions)-1]
}

// notJSON describes what json.Unmarshal has refused. The error's own text is not used, because it quotes the data.
func notJSON(data []byte, err error) *Error {
	syntax, isSyntax := errors.AsType[*json.SyntaxError](err)
	mistyped, isMistyped := errors.AsType[*json.UnmarshalTypeError](err)
	var rest json.RawMessage
	switch {
	case errors.Is(json.NewDecoder(bytes.NewReader(data)).Decode(&rest), io.ErrUnexpectedEOF):
		return invalidData("the bootstrap data is cut off: its JSON ends in the middle, after %d bytes; store it again in full", len(data))
	case isSyntax:
		return invalidData("the bootstrap data is not JSON (error at byte %d of %d); an Ignition config is needed here: "+
			"transpile Butane first, and use the format cloud-init for cloud-config", syntax.Offset, len(data))
	case isMistyped && mistyped.Field != "":
		e := invalidData("the bootstrap data is not a valid Ignition config: %s has the wrong type (byte %d)", mistyped.Field, mistyped.Offset)
		e.Path = "$." + mistyped.Field
		return e
	default:
		return invalidData("the bootstrap data is JSON but not an object; an Ignition config is needed here")
	}
}

// configs returns two configs of the given version that are to be merged over the bootstrap data in turn.
//
// The second holds the identity. Merging it over a file of the same path would keep what it does not set: the owner,
// appended parts, the hash of the old content, at which the boot would fail. So the first puts directories at its paths:
// an entry of another kind displaces the old one as a whole, and is displaced in turn.
func (id Identity) configs(version string) (placeholder, identity []byte) {
	first, second := types.Config{}, types.Config{}
	first.Ignition.Version, second.Ignition.Version = version, version
	for _, file := range []types.File{
		file(hostnamePath, 0o644, id.Hostname+"\n"),
		// NetworkManager ignores a keyfile that others may read.
		file(keyfilePath, 0o600, id.Network.keyfile()),
	} {
		first.Storage.Directories = append(first.Storage.Directories, types.Directory{Node: types.Node{Path: file.Path}})
		second.Storage.Files = append(second.Storage.Files, file)
	}
	second.Systemd.Units = []types.Unit{{
		Name:    kubeletUnit,
		Dropins: []types.Dropin{{Name: kubeletDropin, Contents: new(providerIDDropin(id.ProviderID))}},
	}}
	return mustEncode(first), mustEncode(second)
}

func file(path string, mode int, content string) types.File {
	return types.File{
		Node: types.Node{Path: path, Overwrite: new(true)},
		FileEmbedded1: types.FileEmbedded1{
			Mode:     new(mode),
			Contents: types.FileContents{Source: new("data:;base64," + base64.StdEncoding.EncodeToString([]byte(content)))},
		},
	}
}
