// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package virsh

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestWhatCannotBeQuotedIsRefused(t *testing.T) {
	for name, value := range map[string]string{
		"a line break": "a\nlist", "a tab, which readline completes": "a\tb", "NUL": "a\x00b", "escape": "\x1b[A", "delete": "a\x7f",
		"UTF-8, which readline takes for meta keys": "ä",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := quote(value)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring("cannot be given to virsh")))
		})
	}
}

func TestAValueThatLooksLikeAnOptionIsRefused(t *testing.T) {
	g := NewWithT(t)
	g.Expect(cmd("undefine", "", "--remove-all-storage").err).To(MatchError(ContainSubstring("begins with a dash")))
	g.Expect(cmd("undefine", "", "m1").err).NotTo(HaveOccurred())
}

// TestEveryPairOfCharactersIsOneWord gives all pairs of printable characters to the real parser of virsh.
func TestEveryPairOfCharactersIsOneWord(t *testing.T) {
	g := NewWithT(t)
	s, _ := newLocal(t)
	for first := byte(0x20); first < 0x7f; first++ {
		var commands []command
		var want []string
		for second := byte(0x20); second < 0x7f; second++ {
			value := string([]byte{first, second})
			quoted, err := quote(value)
			g.Expect(err).NotTo(HaveOccurred())
			// A frame keeps blanks visible, and "--" keeps a dash from being an option.
			commands = append(commands, command{verb: "echo", line: `echo -- "<" ` + quoted + ` ">"`})
			want = append(want, "< "+value+" >")
		}
		outputs, err := s.read(t.Context(), commands...)
		g.Expect(err).NotTo(HaveOccurred())
		var got []string
		for _, o := range outputs {
			got = append(got, echoed(o))
		}
		g.Expect(got).To(Equal(want))
	}
}

// echoed is what virsh's echo wrote: it ends without a line break, and the next prompt follows it.
func echoed(o output) string {
	text, _, _ := strings.Cut(o.stdout, prompt+`echo "`+"caplv-")
	return text
}

// FuzzQuoteIsReversible reads quoted values by the rules of virsh's parser, as far as quote uses them.
func FuzzQuoteIsReversible(f *testing.F) {
	f.Add(`a"b\c`)
	f.Fuzz(func(t *testing.T, value string) {
		quoted, err := quote(value)
		if err != nil {
			if !strings.ContainsFunc(value, func(r rune) bool { return r < 0x20 || r > 0x7e }) {
				t.Fatalf("%q was refused", value)
			}
			return
		}
		var read strings.Builder
		i := 1
		for ; i < len(quoted) && quoted[i] != '"'; i++ {
			if quoted[i] == '\\' {
				i++
			}
			read.WriteByte(quoted[i])
		}
		if quoted[0] != '"' || i != len(quoted)-1 || read.String() != value {
			t.Fatalf("%q was quoted as %s and read as %q", value, quoted, read.String())
		}
	})
}

// FuzzQuote gives values to the real parser of virsh, which must hand them back unchanged.
func FuzzQuote(f *testing.F) {
	for _, seed := range []string{"plain", `a b`, `"`, `'`, `\`, `a\"b`, `"; list; "`, `$(reboot)`, "`id`", `a;b#c`, `\\`, `--`, ` `, `a'"b`, `#x`, `a\;b`} {
		f.Add(seed)
	}
	s, _ := newLocal(f)
	f.Fuzz(func(t *testing.T, value string) {
		quoted, err := quote(value)
		if err != nil || strings.HasPrefix(value, "-") { // cmd refuses these; see above.
			return
		}
		if strings.ContainsAny(quoted, "\n\x00") {
			t.Fatalf("%q was quoted as %q", value, quoted)
		}
		// A frame keeps an empty value, and blanks at its ends, visible.
		outputs, err := s.read(t.Context(), command{verb: "echo", line: `echo "<" ` + quoted + ` ">"`})
		if err != nil {
			t.Fatal(err)
		}
		got := echoed(outputs[0])
		if want := "< " + value + " >"; got != want {
			t.Fatalf("virsh read %q where %q was meant (quoted as %s)", got, want, quoted)
		}
	})
}
