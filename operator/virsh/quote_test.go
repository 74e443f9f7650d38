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
		"a line break": "a\nlist", "a tab, which readline completes": "a\tb", "NUL": "a\x00b", "escape": "\x1b[A", "delete": "a\x7f", "UTF-8, which readline takes for meta keys": "ä",
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
		// echo ends without a line break, and the next prompt follows it.
		got, _, _ := strings.Cut(outputs[0].stdout, prompt+`echo "`+"caplv-")
		if want := "< " + value + " >"; got != want {
			t.Fatalf("virsh read %q where %q was meant (quoted as %s)", got, want, quoted)
		}
	})
}
