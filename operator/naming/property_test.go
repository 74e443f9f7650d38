// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package naming_test

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/caplv/caplv/operator/naming"
)

// triple is what identifies a machine.
type triple struct{ namespace, cluster, machine string }

func (p triple) name() string { return naming.Machine(p.namespace, p.cluster, p.machine) }

// labels are DNS labels of 1 to limit characters. Few letters make neighbours that read alike likely.
func labels(limit int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		middle := rapid.StringMatching(`[ab0-]{0,61}`).Filter(func(s string) bool { return len(s) <= limit-2 })
		edge := rapid.StringMatching(`[ab0]`)
		if rapid.Bool().Draw(t, "short") {
			return edge.Draw(t, "letter")
		}
		return edge.Draw(t, "first") + middle.Draw(t, "middle") + edge.Draw(t, "last")
	})
}

// subdomains are DNS subdomains of up to 253 characters, as Kubernetes allows for the names of most objects.
func subdomains() *rapid.Generator[string] {
	return rapid.Map(rapid.SliceOfN(labels(naming.MaxLength), 1, 4), func(parts []string) string {
		name := strings.Join(parts, ".")
		return strings.TrimRight(name[:min(len(name), 253)], ".-")
	})
}

func triples() *rapid.Generator[triple] {
	return rapid.Custom(func(t *rapid.T) triple {
		return triple{
			namespace: labels(naming.MaxLength).Draw(t, "namespace"),
			cluster:   rapid.OneOf(labels(naming.MaxLength), subdomains()).Draw(t, "cluster"),
			machine:   rapid.OneOf(labels(naming.MaxLength), subdomains()).Draw(t, "machine"),
		}
	})
}

func TestEveryNameIsOneDNSLabelAndStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		machine := triples().Draw(t, "machine")
		name := machine.name()
		if len(name) > naming.MaxLength || !label.MatchString(name) {
			t.Fatalf("%+v is called %q, which is no DNS label", machine, name)
		}
		if again := machine.name(); again != name {
			t.Fatalf("%+v is called %q and then %q", machine, name, again)
		}
	})
}

func TestTwoMachinesNeverShareAName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one, other := triples().Draw(t, "one"), triples().Draw(t, "other")
		if one != other && one.name() == other.name() {
			t.Fatalf("%+v and %+v are both called %q", one, other, one.name())
		}
	})
}

// TestNeighboursNeverShareAName compares a machine with all those that read like it: the same text with its dashes and
// dots elsewhere between the three parts, cut at the same place, or called as the machine itself is.
func TestNeighboursNeverShareAName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		machine := triples().Draw(t, "machine")
		seen := map[string]triple{machine.name(): machine}
		for _, other := range neighbours(machine) {
			if other == machine || !other.valid() {
				continue
			}
			name := other.name()
			if twin, taken := seen[name]; taken && twin != other {
				t.Fatalf("%+v and %+v are both called %q", twin, other, name)
			}
			seen[name] = other
		}
	})
}

// neighbours are the machines that are most likely to be confused with p.
func neighbours(p triple) []triple {
	var out []triple
	// Every other way to read the same text.
	text := p.namespace + "-" + p.cluster + "-" + p.machine
	for i := range text {
		for j := i + 2; text[i] == '-' && j < len(text); j++ {
			if text[j] == '-' {
				out = append(out, triple{text[:i], text[i+1 : j], text[j+1:]})
			}
		}
	}
	for _, change := range []func(string) string{
		func(s string) string { return strings.ReplaceAll(s, ".", "-") },
		func(s string) string { return strings.ReplaceAll(s, "-", ".") },
		func(s string) string { return strings.ReplaceAll(s, "--", "-") },
		func(s string) string { return s + "0" },
		func(s string) string { return s[:len(s)-1] + "z" },
		func(s string) string { return s[:max(1, len(s)-1)] },
		func(s string) string { return s + "-0" },
	} {
		out = append(out,
			triple{change(p.namespace), p.cluster, p.machine},
			triple{p.namespace, change(p.cluster), p.machine},
			triple{p.namespace, p.cluster, change(p.machine)},
			triple{p.namespace, change(p.cluster), change(p.machine)},
		)
	}
	// A machine whose parts spell the name that p got, digest included.
	name := p.name()
	for i := range name {
		for j := i + 2; name[i] == '-' && j < len(name); j++ {
			if name[j] == '-' {
				out = append(out, triple{name[:i], name[i+1 : j], name[j+1:]})
			}
		}
	}
	return out
}

// valid says whether Kubernetes accepts the three names.
func (p triple) valid() bool {
	if len(p.namespace) > naming.MaxLength || strings.Contains(p.namespace, ".") {
		return false
	}
	for _, part := range []string{p.namespace, p.cluster, p.machine} {
		if len(part) > 253 {
			return false
		}
		for piece := range strings.SplitSeq(part, ".") {
			if len(piece) > naming.MaxLength || !label.MatchString(piece) {
				return false
			}
		}
	}
	return true
}

// TestVolumesNeverShareAName holds over the volumes of two machines, which can lie in one pool.
func TestVolumesNeverShareAName(t *testing.T) {
	disks := rapid.OneOf(labels(20), rapid.SampledFrom([]string{"root", "a-root", "b", "a-b", "seed"}))
	names := rapid.OneOf(labels(naming.MaxLength), rapid.SampledFrom([]string{"a", "a-b", "a-root", "a-a", "a-a-root"}))
	rapid.Check(t, func(t *rapid.T) {
		one, other := names.Draw(t, "one"), names.Draw(t, "other")
		seen := map[string]string{}
		for _, v := range []struct{ volume, of string }{
			{naming.RootVolume(one), one + " root"}, {naming.RootVolume(other), other + " root"},
			{naming.DataVolume(one, "root"), one + "/root"}, {naming.DataVolume(other, "root"), other + "/root"},
			dataVolume(one, disks.Draw(t, "disk")), dataVolume(other, disks.Draw(t, "disk")),
		} {
			if twin, taken := seen[v.volume]; taken && twin != v.of {
				t.Fatalf("%q is the volume of %q and of %q", v.volume, twin, v.of)
			}
			seen[v.volume] = v.of
			if !volume.MatchString(v.volume) || len(v.volume) > 128 {
				t.Fatalf("%q is no name of a volume", v.volume)
			}
		}
	})
}

// volume is what the API accepts as the name of a volume.
var volume = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.+-]*$`)

func dataVolume(name, disk string) struct{ volume, of string } {
	return struct{ volume, of string }{naming.DataVolume(name, disk), name + "/" + disk}
}

// FuzzTwoMachines gives two machines any names: both names are DNS labels, and they differ.
func FuzzTwoMachines(f *testing.F) {
	long := strings.Repeat("x", naming.MaxLength)
	f.Add("a", "b-c", "d", "a-b", "c", "d")
	f.Add("a", "b", "c-d", "a", "b-c", "d")
	f.Add("a", "b", "c.d", "a", "b", "c-d")
	f.Add("a", long, "b", "a", long, "c")
	f.Add("a", long+"."+long, "b", "a", long+"-"+long, "b")
	f.Add("default", "prod", "worker-01", "default", "prod-worker-01--fb2fd46ab7", "w")
	f.Add("default", "prod-worker", "01", "default", "prod", "worker-01")
	f.Fuzz(func(t *testing.T, namespace1, cluster1, machine1, namespace2, cluster2, machine2 string) {
		one, other := triple{namespace1, cluster1, machine1}, triple{namespace2, cluster2, machine2}
		if !one.valid() || !other.valid() {
			return
		}
		for _, p := range []triple{one, other} {
			if name := p.name(); len(name) > naming.MaxLength || !label.MatchString(name) {
				t.Errorf("%+v is called %q, which is no DNS label", p, name)
			}
		}
		if one != other && one.name() == other.name() {
			t.Errorf("%+v and %+v are both called %q", one, other, one.name())
		}
	})
}
