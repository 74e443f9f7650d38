// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/caplv/caplv/operator/bootstrap"
)

// object is a part of a config.
type object = map[string]any

// randomConfig returns a valid config of any version with some users, groups, files, directories, links and units.
func randomConfig(random *rand.Rand, version string) object {
	text := func() string {
		letters := []rune("abcXYZ019 .:-_/\"\\<>&'\n\t%äß€\U0001f600")
		out := make([]rune, random.IntN(20))
		for i := range out {
			out[i] = letters[random.IntN(len(letters))]
		}
		return string(out)
	}
	serial := 0
	name := func(prefix string) string {
		serial++
		return fmt.Sprintf("%s%d", prefix, serial)
	}
	list := func(entry func() object) []any {
		var out []any
		for range random.IntN(6) {
			out = append(out, entry())
		}
		return out
	}
	node := func(path string) object {
		o := object{"path": path}
		if version[0] == '2' {
			o["filesystem"] = "root"
		}
		if random.IntN(2) == 0 {
			o["user"] = object{"id": 1 + random.IntN(9)}
		}
		return o
	}
	with := func(o, more object) object { maps.Copy(o, more); return o }
	storage := object{
		"files": list(func() object {
			source := fmt.Sprintf("data:,%x", text())
			return with(node("/srv/"+name("f")), object{"mode": 1 + random.IntN(0o777), "contents": object{"source": source}})
		}),
	}
	// It has only files.
	if version != "2.0.0" {
		storage["directories"] = list(func() object { return with(node("/srv/"+name("d")), object{"mode": 1 + random.IntN(0o777)}) })
		storage["links"] = list(func() object { return with(node("/srv/"+name("l")), object{"target": "/" + name("t")}) })
	}
	return object{
		"ignition": object{"version": version},
		"passwd": object{
			"users": list(func() object {
				return object{"name": name("u"), "passwordHash": "$" + text(), "sshAuthorizedKeys": []any{name("ssh-ed25519 " + text())}}
			}),
			"groups": list(func() object { return object{"name": name("g"), "gid": 1 + random.IntN(9)} }),
		},
		"storage": storage,
		"systemd": object{"units": list(func() object {
			unit := object{"name": name("u") + ".service", "contents": "[Unit]\nDescription=" + name("d") + "\n"}
			if random.IntN(2) == 0 {
				unit["dropins"] = []any{object{"name": name("d") + ".conf", "contents": "[Service]\nEnvironment=A=" + name("v") + "\n"}}
			}
			return unit
		})},
	}
}

// survivors are the lists whose entries must all be found again.
var survivors = [][2]string{
	{"passwd", "users"}, {"passwd", "groups"}, {"storage", "files"}, {"storage", "directories"}, {"storage", "links"}, {"systemd", "units"},
}

func TestEveryEntryOfAConfigSurvives(t *testing.T) {
	for _, version := range append(slices.Sorted(maps.Keys(versions)), slices.Sorted(maps.Keys(versions2))...) {
		t.Run(version, func(t *testing.T) {
			for seed := range uint64(30) {
				g := NewWithT(t)
				config := randomConfig(rand.New(rand.NewPCG(seed, 0)), version)
				data, err := json.Marshal(config)
				g.Expect(err).NotTo(HaveOccurred())
				out, err := bootstrap.Ignition(data, worker(), bootstrap.Compact)
				g.Expect(err).NotTo(HaveOccurred(), "seed %d: %s", seed, data)

				var before, after map[string]map[string]any
				g.Expect(json.Unmarshal(data, &before)).To(Succeed())
				g.Expect(json.Unmarshal(unpack(g, out), &after)).To(Succeed())
				for _, place := range survivors {
					want, _ := before[place[0]][place[1]].([]any)
					got, _ := after[place[0]][place[1]].([]any)
					for _, entry := range want {
						g.Expect(got).To(ContainElement(entry), "seed %d: %s.%s", seed, place[0], place[1])
					}
					added := map[string]int{"files": 3, "units": 1}[place[1]]
					g.Expect(got).To(HaveLen(len(want)+added), "seed %d: %s.%s", seed, place[0], place[1])
				}
			}
		})
	}
}
