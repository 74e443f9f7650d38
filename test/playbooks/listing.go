// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

package playbooks

import (
	"context"
	_ "embed"
	"slices"
	"strings"

	"github.com/caplv/caplv/test/bench/host"
)

//go:embed listing.py
var listingScript string

// Listing is what a host has, a line for each thing.
type Listing []string

// List lists a host. See listing.py for what is left out.
func List(ctx context.Context, h *host.Host) (Listing, error) {
	out, err := h.Exec(ctx, "python3", "-B", "-c", listingScript)
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSpace(out), "\n"), nil
}

// Since returns what is different from an earlier listing: lines that are new with "+" in front, lines that are gone with "-".
func (l Listing) Since(before Listing) []string {
	var diff []string
	known := map[string]int{}
	for _, line := range before {
		known[line]++
	}
	for _, line := range l {
		if known[line] > 0 {
			known[line]--
			continue
		}
		diff = append(diff, "+ "+line)
	}
	for line, n := range known {
		for range n {
			diff = append(diff, "- "+line)
		}
	}
	slices.SortFunc(diff, func(a, b string) int { return strings.Compare(a[2:], b[2:]) })
	return diff
}
