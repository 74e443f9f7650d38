// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/coreos/ignition/config/validate"
	"github.com/coreos/ignition/config/validate/report"
)

// editor2Of makes an editor for a version of spec 2 of its parser and of the types that hold its configs.
//
// Spec 2 has no merging by path: lists are appended to, a file may be there several times, and the last one wins. So what is in
// the way is taken out, and the identity is put at the end.
func editor2Of[Config, Parsed any](parse func([]byte) (Parsed, report.Report, error)) editor {
	return func(data []byte, version string, id Identity) ([]byte, error) {
		if mistyped := mistyped[Config](data); mistyped != "" {
			return nil, refused(mistyped, wrongType, notValid, validateIt)
		}
		if rpt, ok := check2(data, parse); !ok {
			return nil, refused2(rpt, notValid, validateIt)
		}
		var config Config
		if err := json.Unmarshal(data, &config); err != nil {
			return nil, refused("", "", notValid, validateIt)
		}
		tree := config2{version: version}
		mustDecode(mustEncode(config, meaningful...), &tree.root)
		if err := tree.add(id); err != nil {
			return nil, err
		}
		out := mustEncode(tree.root, meaningful...)
		if rpt, ok := check2(out, parse); !ok {
			return nil, refused2(rpt, conflicting, makeRoom)
		}
		return out, nil
	}
}

// maxForPositions is the size in bytes up to which a config is parsed with positions, in case it is refused.
const maxForPositions = 32 << 10

// check2 validates a config, and returns the report if it is refused. It does not parse it as Ignition would: for each value that
// reads the config from its beginning to know the line, which takes ten seconds for 100 KiB.
func check2[Parsed any](data []byte, parse func([]byte) (Parsed, report.Report, error)) (report.Report, bool) {
	var config Parsed
	if err := json.Unmarshal(data, &config); err != nil {
		return report.Report{}, false
	}
	rpt := validate.ValidateWithoutSource(reflect.ValueOf(config))
	if !rpt.IsFatal() {
		return report.Report{}, true
	}
	if len(data) <= maxForPositions {
		if _, positions, err := parse(data); err != nil {
			rpt = positions
		}
	}
	return rpt, false
}

// meaningful are members of configs of spec 2 that mean something even if they are empty: that a filesystem or a user is to be
// created, or the config replaced.
var meaningful = []string{"create", "mount", "replace"}

// refused2 describes what the parser of spec 2 has refused. Its positions are lines and columns.
func refused2(rpt report.Report, what, wayOut string) *Error {
	for _, entry := range rpt.Entries {
		if entry.Kind != report.EntryError {
			continue
		}
		where, text := "", ""
		if entry.Line > 0 {
			where = fmt.Sprintf(" at line %d, column %d", entry.Line, entry.Column)
		}
		if _, ok := constantTexts[entry.Message]; ok {
			text = " (" + entry.Message + ")"
		}
		if where+text != "" {
			what += ": the first error is" + where + text
		}
		return invalidData("%s; %s", what, wayOut)
	}
	return refused("", "", what, wayOut)
}

// config2 is a config of spec 2 as JSON has it.
type config2 struct {
	version string
	root    object
}

type object = map[string]any

// add writes the identity into the config.
func (c config2) add(id Identity) error {
	ignition, _ := c.root["ignition"].(object)
	if config, ok := ignition["config"].(object); ok && config["replace"] != nil {
		return replaced(c.version)
	}
	onRoot := c.rootFilesystem()
	own := []string{hostnamePath, keyfilePath, dropinPath}
	if err := c.makeRoom(onRoot, own); err != nil {
		return err
	}
	c.addKubeletEnv(onRoot, id)
	c.append("storage", "files",
		c.file(hostnamePath, hostnameMode, id.Hostname+"\n"),
		c.file(keyfilePath, keyfileMode, id.Network.keyfile()))
	c.addDropin(id)
	return nil
}

// list returns a list of objects of a section of the config, such as storage.files.
func (c config2) list(section, name string) []object {
	parent, _ := c.root[section].(object)
	entries, _ := parent[name].([]any)
	out := make([]object, 0, len(entries))
	for _, entry := range entries {
		if entry, ok := entry.(object); ok {
			out = append(out, entry)
		}
	}
	return out
}

// set replaces such a list, which loses its entries that are null: they stand for empty ones, and no such entry is valid.
func (c config2) set(section, name string, entries []object) {
	parent, _ := c.root[section].(object)
	if parent == nil {
		parent = object{}
		c.root[section] = parent
	}
	list := make([]any, 0, len(entries))
	for _, entry := range entries {
		list = append(list, entry)
	}
	parent[name] = list
}

func (c config2) append(section, name string, entries ...object) {
	c.set(section, name, append(c.list(section, name), entries...))
}

// rootFilesystem returns what decides whether an entry lies on the guest's root filesystem. Besides "root", which is always
// there, a config may name it otherwise: by where it is mounted in the initramfs, or by its label.
func (c config2) rootFilesystem() func(entry object) bool {
	names := []string{"root"}
	for _, filesystem := range c.list("storage", "filesystems") {
		mount, _ := filesystem["mount"].(object)
		device := text(mount, "device")
		if path.Clean(text(filesystem, "path")) == "/sysroot" ||
			device == "/dev/disk/by-label/ROOT" || device == "/dev/disk/by-partlabel/ROOT" {
			names = append(names, text(filesystem, "name"))
		}
	}
	return func(entry object) bool { return slices.Contains(names, text(entry, "filesystem")) }
}

// kinds are the lists of what has a path on a filesystem.
var kinds = []string{"files", "directories", "links"}

// makeRoom takes out what the config has at the given paths. Files and links above them, and anything below them, cannot be
// taken out without changing what the author wants.
func (c config2) makeRoom(onRoot func(object) bool, own []string) error {
	for _, kind := range kinds {
		entries := c.list("storage", kind)
		for i, entry := range entries {
			for _, own := range own {
				at := path.Clean(text(entry, "path"))
				if onRoot(entry) && at != own && (atOrAbove(own, at) || kind != "directories" && atOrAbove(at, own)) {
					return refused(fmt.Sprintf("$.storage.%s.%d.path", kind, i), "", conflicting, makeRoom)
				}
			}
		}
		kept := slices.DeleteFunc(slices.Clone(entries), func(entry object) bool {
			return onRoot(entry) && slices.Contains(own, path.Clean(text(entry, "path")))
		})
		if len(kept) < len(entries) {
			c.set("storage", kind, kept)
		}
	}
	return nil
}

// addKubeletEnv does for spec 2 what Identity.kubeletEnv does for spec 3. A file that is there several times becomes one, with the
// mode and owner that are named last.
func (c config2) addKubeletEnv(onRoot func(object) bool, id Identity) {
	merged := object{}
	var resources []resource
	appends := c.canAppend()
	for _, kind := range kinds {
		for _, entry := range c.list("storage", kind) {
			at := path.Clean(text(entry, "path"))
			if !onRoot(entry) || !atOrAbove(at, kubeletEnvPath) || kind == "directories" && at != kubeletEnvPath {
				continue
			}
			if kind != "files" || at != kubeletEnvPath {
				return
			}
			if entry["append"] != true {
				merged, resources, appends = object{}, nil, false
			}
			var r resource
			if contents, ok := entry["contents"]; ok {
				mustDecode(mustEncode(contents), &r)
			}
			resources = append(resources, r)
			for _, key := range []string{"mode", "user", "group"} {
				if entry[key] != nil {
					merged[key] = entry[key]
				}
			}
		}
	}
	content, ok := contents(resources)
	if !ok {
		return
	}
	file := c.file(kubeletEnvPath, kubeletEnvMode, string(setProviderID(content, id.ProviderID)))
	if appends {
		delete(file, "overwrite")
		file["append"] = true
	}
	if len(resources) > 0 {
		// Without a mode in the config, the version's default stays.
		delete(file, "mode")
	}
	maps.Copy(file, merged)
	files := slices.DeleteFunc(c.list("storage", "files"), func(entry object) bool {
		return onRoot(entry) && path.Clean(text(entry, "path")) == kubeletEnvPath
	})
	c.set("storage", "files", append(files, file))
}

// addDropin adds the drop-in to the first unit of the kubelet, and takes drop-ins of the same name from all of them.
func (c config2) addDropin(id Identity) {
	units := c.list("systemd", "units")
	dropin := object{"name": kubeletDropin, "contents": providerIDDropin(id.ProviderID)}
	added := false
	for _, unit := range units {
		if text(unit, "name") != kubeletUnit {
			continue
		}
		dropins, _ := unit["dropins"].([]any)
		dropins = slices.DeleteFunc(slices.Clone(dropins), func(entry any) bool {
			dropin, ok := entry.(object)
			return ok && text(dropin, "name") == kubeletDropin
		})
		if !added {
			dropins = append(dropins, dropin)
			added = true
		}
		unit["dropins"] = dropins
	}
	if !added {
		units = append(units, object{"name": kubeletUnit, "dropins": []any{dropin}})
	}
	c.set("systemd", "units", units)
}

// file returns an entry of storage.files.
func (c config2) file(path string, mode int, content string) object {
	file := object{"filesystem": "root", "path": path, "mode": mode, "contents": object{"source": dataURL([]byte(content))}}
	if c.canAppend() {
		file["overwrite"] = true
	}
	return file
}

// canAppend reports whether files can be appended to, and be told whether to overwrite: since 2.2.
func (c config2) canAppend() bool {
	return !strings.HasPrefix(c.version, "2.0.") && !strings.HasPrefix(c.version, "2.1.")
}

func text(o object, key string) string {
	s, _ := o[key].(string)
	return s
}

// mustDecode decodes what mustEncode has written into something that takes it.
func mustDecode(data []byte, into any) {
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		panic(err)
	}
}
