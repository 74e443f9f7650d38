// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"encoding/base64"
	"encoding/json"
	"path"
	"strings"

	types "github.com/coreos/ignition/v2/config/v3_0/types"
)

// configs returns two configs of the given version of spec 3 that are to be merged over the bootstrap data in turn. Env is the
// file at kubeletEnvPath, nil if that is to stay as it is.
//
// The second holds the identity. Merging it over a file of the same path would keep what it does not set: the owner,
// appended parts, the hash of the old content, at which the boot would fail. So the first puts directories at its paths:
// an entry of another kind displaces the old one as a whole, and is displaced in turn.
func (id Identity) configs(version string, env *types.File) (placeholder, identity []byte) {
	first, second := types.Config{}, types.Config{}
	first.Ignition.Version, second.Ignition.Version = version, version
	files := []types.File{
		file(hostnamePath, hostnameMode, id.Hostname+"\n"),
		file(keyfilePath, keyfileMode, id.Network.keyfile()),
	}
	if env != nil {
		files = append(files, *env)
	}
	for _, file := range files {
		first.Storage.Directories = append(first.Storage.Directories, types.Directory{Node: types.Node{Path: file.Path}})
		second.Storage.Files = append(second.Storage.Files, file)
	}
	second.Systemd.Units = []types.Unit{{
		Name:    kubeletUnit,
		Dropins: []types.Dropin{{Name: kubeletDropin, Contents: new(providerIDDropin(id.ProviderID))}},
	}}
	return mustEncode(first), mustEncode(second)
}

// namesFurther reports whether a config of spec 3 (JSON) has the guest merge further ones.
func namesFurther(config []byte) bool {
	var tree types.Config
	return json.Unmarshal(config, &tree) == nil && len(tree.Ignition.Config.Merge) > 0
}

// lastWord returns a config that is to be merged over one that names further configs. It has the guest merge the identity once
// more, after all of them, so that none of them makes the machine another one. Of kubelet-env it says nothing: what a further
// config has there is not known here.
func (id Identity) lastWord(version string) []byte {
	placeholder, identity := id.configs(version, nil)
	last := types.Config{}
	last.Ignition.Version = version
	for _, config := range [][]byte{placeholder, identity} {
		last.Ignition.Config.Merge = append(last.Ignition.Config.Merge, types.ConfigReference{Source: new(dataURL(config))})
	}
	return mustEncode(last)
}

func file(path string, mode int, content string) types.File {
	return types.File{
		Node:          types.Node{Path: path, Overwrite: new(true)},
		FileEmbedded1: types.FileEmbedded1{Mode: new(mode), Contents: types.FileContents{Source: new(dataURL([]byte(content)))}},
	}
}

func dataURL(content []byte) string {
	return "data:;base64," + base64.StdEncoding.EncodeToString(content)
}

// kubeletEnv returns the file at kubeletEnvPath as it has to be, with the provider ID among the entries that the config (JSON of
// any version of spec 3) has there already. Where these cannot be known, because they come over the network or the path is no
// file, it returns nil: the drop-in of the kubelet's unit suffices then, and the file is left alone.
//
// A file that only appends, and one that the config does not have, may add to a file of the image. It stays like that.
func (id Identity) kubeletEnv(config []byte) *types.File {
	// The types of 3.0.0 hold all that is needed here of any version.
	var tree types.Config
	if err := json.Unmarshal(config, &tree); err != nil {
		return nil
	}
	env := types.File{
		Node:          types.Node{Path: kubeletEnvPath},
		FileEmbedded1: types.FileEmbedded1{Mode: new(kubeletEnvMode)},
	}
	for _, link := range tree.Storage.Links {
		if atOrAbove(link.Path, kubeletEnvPath) {
			return nil
		}
	}
	for _, directory := range tree.Storage.Directories {
		if directory.Path == kubeletEnvPath {
			return nil
		}
	}
	for _, file := range tree.Storage.Files {
		switch {
		case file.Path == kubeletEnvPath:
			env = file
		case atOrAbove(file.Path, kubeletEnvPath):
			return nil
		}
	}
	resources := make([]resource, 0, len(env.Append)+1)
	for _, contents := range append([]types.FileContents{env.Contents}, env.Append...) {
		resources = append(resources, resourceOf(contents))
	}
	content, ok := contents(resources)
	if !ok {
		return nil
	}
	merged := types.FileContents{Source: new(dataURL(setProviderID(content, id.ProviderID)))}
	if env.Contents.Source != nil || env.Overwrite != nil && *env.Overwrite {
		env.Contents, env.Append = merged, nil
		// Without it, Ignition refuses to write over a file of the image.
		env.Overwrite = new(true)
	} else {
		env.Contents, env.Append = types.FileContents{}, []types.FileContents{merged}
	}
	return &env
}

func resourceOf(contents types.FileContents) resource {
	r := resource{Source: contents.Source, Compression: contents.Compression}
	r.Verification.Hash = contents.Verification.Hash
	return r
}

// atOrAbove reports whether path a is path b or one of the directories that lead to it. Both are absolute.
func atOrAbove(a, b string) bool {
	a = path.Clean(a)
	return a == b || strings.HasPrefix(b, strings.TrimSuffix(a, "/")+"/")
}
