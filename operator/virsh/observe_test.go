// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package virsh

import (
	"strings"
	"testing"
)

// FuzzWhatVirshPrints gives the parsers of single commands whatever a host could print.
func FuzzWhatVirshPrints(f *testing.F) {
	f.Add(" a b            /p/a b\n root.qcow2     /p/root.qcow2\n", "root.qcow2")
	f.Add("m1\nm2\n\n", "m1")
	f.Add("paused (I/O error)\n", "")
	f.Add("CPU(s):              8\nMemory size:         5976880 KiB\n", "CPU(s)")
	f.Add("total  :             24684208 KiB\n", "total")
	f.Add("CPU(s): -1\nMemory size: 99999999999999999999 KiB\n", "")
	f.Add("<capabilities><host><uuid>A6526E0C-3d7b-41da-85a5-1026100cd748</uuid></host></capabilities>", "uuid")
	f.Fuzz(func(t *testing.T, output, name string) {
		if (lists(output, name) || listsVolume(output, name)) && (name == "" || !strings.Contains(output, name)) {
			t.Fatalf("%q was found in %q", name, output)
		}
		if !strings.Contains(name, "\n") && name != "" && strings.TrimRight(name, " ") == name && !lists(output+"\n"+name+"\n", name) {
			t.Fatalf("%q was not found at the end of %q", name, output)
		}
		state, reason := parseState(output)
		if len(state)+len(reason) > len(output) {
			t.Fatalf("%q became %q and %q", output, state, reason)
		}
		if _, memory := parseSize(output, output); memory > 1<<54 {
			t.Fatalf("%q is %d MiB", output, memory)
		}
		if uuid := systemUUID(output); uuid != strings.ToLower(strings.TrimSpace(uuid)) {
			t.Fatalf("%q has the UUID %q", output, uuid)
		}
	})
}
