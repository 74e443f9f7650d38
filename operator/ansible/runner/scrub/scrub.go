// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scrub takes secrets out of texts, as they are and as JSON writes them.
package scrub

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"
)

const (
	// Mask is what is in a text in place of a secret.
	Mask = "********"
	// shortLine is the length below which a line of a secret of several lines is no secret of its own: "}" or "-----END".
	shortLine = 12
	// longLine is how much of a line is held back for a secret that might go on.
	longLine = 64 << 10
)

// Scrubber knows secrets. A nil one knows none.
type Scrubber struct {
	replacer *strings.Replacer
	longest  int
}

// New returns a Scrubber. Of secrets with several lines, each line is one; headers of keys are none.
func New(secrets []string) *Scrubber {
	found := map[string]bool{}
	for _, secret := range secrets {
		lines := strings.FieldsFunc(secret, func(r rune) bool { return r == '\n' || r == '\r' })
		for _, line := range lines {
			if len(lines) > 1 && (len(line) < shortLine || strings.HasPrefix(line, "-----")) {
				continue
			}
			found[line] = true
			for _, form := range inJSON(line) {
				found[form] = true
			}
		}
	}
	delete(found, "")
	if len(found) == 0 {
		return nil
	}
	s := &Scrubber{}
	var forms []string
	for form := range found {
		forms = append(forms, form)
		s.longest = max(s.longest, len(form))
	}
	// Of two secrets that begin alike, the longer one is looked for first.
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(forms))
	for _, form := range forms {
		pairs = append(pairs, form, Mask)
	}
	s.replacer = strings.NewReplacer(pairs...)
	return s
}

// inJSON returns how JSON writes a text: as Go does, as Python does, and without escaping for HTML.
func inJSON(text string) []string {
	plain, _ := json.Marshal(text)
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text)
	return []string{unquoted(string(plain)), unquoted(strings.TrimSpace(buffer.String())), unquoted(strconv.QuoteToASCII(text))}
}

func unquoted(text string) string { return text[1 : len(text)-1] }

// Text returns a text without secrets.
func (s *Scrubber) Text(text string) string {
	if s == nil {
		return text
	}
	return s.replacer.Replace(text)
}

// Writer returns a writer that passes on what is written to it without secrets, line by line. Close passes on the rest.
func (s *Scrubber) Writer(w io.Writer) io.WriteCloser { return &writer{scrubber: s, next: w} }

type writer struct {
	scrubber *Scrubber
	next     io.Writer
	held     []byte
}

func (w *writer) Write(data []byte) (int, error) {
	w.held = append(w.held, data...)
	end := bytes.LastIndexByte(w.held, '\n') + 1
	if end > 0 {
		_, err := io.WriteString(w.next, w.scrubber.Text(string(w.held[:end])))
		w.held = append(w.held[:0], w.held[end:]...)
		if err != nil {
			return 0, err
		}
	}
	if len(w.held) > longLine {
		return len(data), w.passLongLine()
	}
	return len(data), nil
}

// passLongLine keeps back only what a secret might begin in.
func (w *writer) passLongLine() error {
	text := w.scrubber.Text(string(w.held))
	keep := 0
	if w.scrubber != nil {
		keep = min(w.scrubber.longest, len(text))
	}
	_, err := io.WriteString(w.next, text[:len(text)-keep])
	w.held = append(w.held[:0], text[len(text)-keep:]...)
	return err
}

func (w *writer) Close() error {
	_, err := io.WriteString(w.next, w.scrubber.Text(string(w.held)))
	w.held = nil
	return err
}
