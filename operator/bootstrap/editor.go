// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"unicode"

	"github.com/coreos/vcontext/report"
)

// editor adds an identity to a config (JSON) of one spec version.
type editor func(config []byte, version string, id Identity) ([]byte, error)

// editorOf makes an editor of the functions that each version of Ignition's spec has with types of its own.
func editorOf[Config any](
	parse func([]byte) (Config, report.Report, error),
	merge func(parent, child Config) Config,
) editor {
	return func(data []byte, version string, id Identity) ([]byte, error) {
		config, rpt, err := parse(data)
		if err != nil {
			path, text := firstFatal(rpt)
			if mistyped := mistyped[Config](data); mistyped != "" {
				path, text = mistyped, wrongType
			}
			return nil, refused(path, text, notValid, validateIt)
		}
		before := mustEncode(config)
		placeholder, identity := id.configs(version, id.kubeletEnv(before))
		overlays := [][]byte{placeholder, identity}
		if namesFurther(before) {
			overlays = append(overlays, id.lastWord(version))
		}
		for _, overlay := range overlays {
			child, _, err := parse(overlay)
			if err != nil {
				return nil, invalidIdentity("the machine's identity makes no valid Ignition config")
			}
			config = merge(config, child)
		}
		out := mustEncode(config)
		if _, rpt, err := parse(out); err != nil {
			path, text := firstFatal(rpt)
			return nil, refused(path, text, conflicting, makeRoom)
		}
		return out, nil
	}
}

// mistyped returns the position of the first value whose type is wrong. The parser's report has it only within a text that
// quotes the value.
func mistyped[Config any](data []byte) string {
	var config Config
	e, ok := errors.AsType[*json.UnmarshalTypeError](json.Unmarshal(data, &config))
	if !ok || e.Field == "" {
		return ""
	}
	// Names with a capital belong to structs that are embedded in Ignition's types, not to the config.
	keys := slices.DeleteFunc(strings.Split(e.Field, "."), func(key string) bool {
		return key == "" || unicode.IsUpper(rune(key[0]))
	})
	return "$." + strings.Join(keys, ".")
}

// What can be wrong with a config, and the ways out.
const (
	wrongType   = " (wrong type)"
	notValid    = "the bootstrap data is not a valid Ignition config"
	conflicting = "the bootstrap data conflicts with the machine's identity"
	validateIt  = "run ignition-validate on it for the details"
	makeRoom    = "remove what it has at or above " + hostnamePath + ", " + keyfilePath + " and drop-in " + kubeletDropin + " of " + kubeletUnit
)

// refused describes what Ignition's parser has refused.
func refused(path, text, what, wayOut string) *Error {
	if path != "" {
		what += ": the first error is at " + path + text
	}
	e := invalidData("%s; %s", what, wayOut)
	e.Path = path
	return e
}

// mustEncode returns a config as JSON with sorted keys and without the empty objects and nulls that the types leave behind:
// they say nothing, and a guest reads every byte slowly. Members called keep stay even if they are empty. A config consists of strings, integers, booleans, lists and
// structs, none of which can fail to be encoded.
func mustEncode(config any, keep ...string) []byte {
	raw, err := json.Marshal(config)
	if err != nil {
		panic(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	// Integers keep their digits.
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		panic(err)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(prune(tree, keep)); err != nil {
		panic(err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// prune removes empty members from objects. Entries of lists stay, because their number has a meaning.
func prune(node any, keep []string) any {
	switch node := node.(type) {
	case map[string]any:
		for key, member := range node {
			member = prune(member, keep)
			if object, ok := member.(map[string]any); member == nil || ok && len(object) == 0 && !slices.Contains(keep, key) {
				delete(node, key)
				continue
			}
			node[key] = member
		}
	case []any:
		for i, entry := range node {
			node[i] = prune(entry, keep)
		}
	}
	return node
}
