// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bootstrap writes a machine's identity into its bootstrap data: hostname, provider ID and the static
// configuration of its network. It knows nothing of hosts or Kubernetes objects.
package bootstrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/coreos/ignition/config/v2_0"
	"github.com/coreos/ignition/config/v2_1"
	types21 "github.com/coreos/ignition/config/v2_1/types"
	"github.com/coreos/ignition/config/v2_2"
	types22 "github.com/coreos/ignition/config/v2_2/types"
	"github.com/coreos/ignition/config/v2_3"
	types23 "github.com/coreos/ignition/config/v2_3/types"
	"github.com/coreos/ignition/config/v2_4"
	types24 "github.com/coreos/ignition/config/v2_4/types"
	"github.com/coreos/ignition/v2/config/v3_0"
	"github.com/coreos/ignition/v2/config/v3_1"
	"github.com/coreos/ignition/v2/config/v3_2"
	"github.com/coreos/ignition/v2/config/v3_3"
	"github.com/coreos/ignition/v2/config/v3_4"
	"github.com/coreos/ignition/v2/config/v3_5"
)

// editors holds the spec versions that can be edited. Each is parsed, merged and validated by Ignition's own code for that
// version, so that the guest's Ignition gets what its author wrote for.
var editors = map[string]editor{
	// The types of 2.0 write URLs that are not JSON. Those of 2.1 hold whatever 2.0 has.
	"2.0.0": editor2Of[types21.Config](v2_0.Parse),
	"2.1.0": editor2Of[types21.Config](v2_1.Parse),
	"2.2.0": editor2Of[types22.Config](v2_2.Parse),
	"2.3.0": editor2Of[types23.Config](v2_3.Parse),
	"2.4.0": editor2Of[types24.Config](v2_4.Parse),
	"3.0.0": editorOf(v3_0.Parse, v3_0.Merge),
	"3.1.0": editorOf(v3_1.Parse, v3_1.Merge),
	"3.2.0": editorOf(v3_2.Parse, v3_2.Merge),
	"3.3.0": editorOf(v3_3.Parse, v3_3.Merge),
	"3.4.0": editorOf(v3_4.Parse, v3_4.Merge),
	"3.5.0": editorOf(v3_5.Parse, v3_5.Merge),
}

// Ignition returns the Ignition config data (JSON, spec 2.0.0 to 2.4.0 and 3.0.0 to 3.5.0) with the identity added to it:
// /etc/hostname, a drop-in of kubelet.service and an entry of /etc/kubernetes/kubelet-env with KUBELET_PROVIDERID, and a
// NetworkManager connection for the interface. What the config has at these places is replaced, but the other entries of
// kubelet-env stay. Everything else is kept, except keys that the spec does not know, which Ignition ignores. The result is of
// the same spec version, valid, and the same for the same input.
//
// A config that names further ones in ignition.config.merge (spec 2: append) keeps them. The guest merges them over this one,
// and fetches them before the connection exists there. In spec 3, two more entries at the end of the list hold the identity
// again, so that it outlasts them.
//
// Every error is an *Error.
func Ignition(data []byte, id Identity, delivery Delivery) ([]byte, error) {
	if err := id.validate(); err != nil {
		return nil, err
	}
	version, err := specVersion(data)
	if err != nil {
		return nil, err
	}
	out, err := editors[version](data, version, id)
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			e.Version = version
		}
		return nil, err
	}
	if delivery == Compact && compressible(version) {
		out = compact(out, version)
	}
	return out, nil
}

// head is the part of a config that is needed before its version is known.
type head struct {
	// IgnitionVersion is where spec 1 has its version.
	IgnitionVersion json.RawMessage `json:"ignitionVersion"`
	Ignition        struct {
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
		if h.IgnitionVersion != nil {
			return "", unsupported("1", "spec 1, which no supported guest reads")
		}
		return "", invalidData("the bootstrap data is JSON without ignition.version; is it an Ignition config? %s", supported())
	}
	version := *h.Ignition.Version
	if !versionForm.MatchString(version) {
		return "", invalidData("ignition.version of the bootstrap data is not a version such as 3.2.0; %s", supported())
	}
	if _, ok := editors[version]; !ok {
		return "", unsupported(version, "spec "+version+", which is not known")
	}
	if h.Ignition.Config.Replace.Source != nil {
		return "", replaced(version)
	}
	return version, nil
}

// replaced refuses a config that the guest would discard.
func replaced(version string) *Error {
	further := "merge"
	if version[0] == '2' {
		further = "append"
	}
	e := invalidData("ignition.config.replace of the bootstrap data makes the guest discard this config, and the machine's "+
		"identity with it; use ignition.config.%s instead", further)
	e.Version, e.Path = version, "$.ignition.config.replace"
	return e
}

func unsupported(version, what string) *Error {
	return &Error{Reason: UnsupportedIgnitionVersion, Version: version, Path: "$.ignition.version", Message: "the bootstrap data is an " +
		"Ignition config of " + what + "; have the bootstrap provider produce one that is; " + supported()}
}

func supported() string {
	var ranges []string
	for _, major := range []string{"2.", "3."} {
		versions := slices.DeleteFunc(slices.Sorted(maps.Keys(editors)), func(version string) bool { return !strings.HasPrefix(version, major) })
		ranges = append(ranges, versions[0]+" to "+versions[len(versions)-1])
	}
	return "supported are Ignition configs of spec " + strings.Join(ranges, " and ")
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
