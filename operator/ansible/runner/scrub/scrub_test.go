// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package scrub

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestText(t *testing.T) {
	key := "-----BEGIN KEY-----\nAAAAB3NzaC1yc2E\n}\n-----END KEY-----\n"
	for _, tt := range []struct {
		name    string
		secrets []string
		text    string
		clean   string
	}{
		{"nothing is secret", nil, "a text", "a text"},
		{"a secret is masked wherever it is", []string{"abc"}, "abc xabcx", "******** x********x"},
		{"the longer of two goes first", []string{"abc", "abcdef"}, "abcdef", "********"},
		{"a secret in JSON", []string{`a"b<c`}, `{"x": "a\"b<c"}`, `{"x": "********"}`},
		{"a secret in JSON as Go writes it", []string{`a"b<c`}, `{"x": "a\"b\u003cc"}`, `{"x": "********"}`},
		{"a secret in JSON as Python writes it", []string{"naïve"}, `"na\u00efve"`, `"********"`},
		{"a key's lines, but not what all keys have", []string{key}, key, "-----BEGIN KEY-----\n********\n}\n-----END KEY-----\n"},
		{"an empty secret is none", []string{""}, "text", "text"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			NewWithT(t).Expect(New(tt.secrets).Text(tt.text)).To(Equal(tt.clean))
		})
	}
}

func TestWriterFindsSecretsAcrossWrites(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	w := New([]string{"secret"}).Writer(&out)
	for _, part := range []string{"a sec", "ret and\nthe sec", "ret", " end"} {
		_, err := w.Write([]byte(part))
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(w.Close()).To(Succeed())
	g.Expect(out.String()).To(Equal("a ******** and\nthe ******** end"))
}

// FuzzWriter writes a text piece by piece, on lines that are longer than what is held back.
func FuzzWriter(f *testing.F) {
	f.Add("secret", "before ", 7, 70000)
	f.Add(`a"b`, "x\n", 1, 10)
	f.Fuzz(func(t *testing.T, secret, before string, piece, padding int) {
		// A secret that is like the mask, or like what is around it, can be found by chance.
		if len(secret) < 4 || strings.ContainsAny(secret, "*\r\n.") || strings.Contains(before, secret) || piece < 1 || padding < 0 || padding > 200000 {
			return
		}
		quoted, _ := json.Marshal(secret)
		text := before + strings.Repeat(".", padding) + secret + "..." + string(quoted) + "..." + secret
		var out bytes.Buffer
		w := New([]string{secret}).Writer(&out)
		for rest := text; rest != ""; {
			n := min(max(piece, len(text)/100), len(rest))
			if _, err := w.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), secret) {
			t.Fatalf("%q is still there", secret)
		}
	})
}
