// Copyright The CAPLV Authors.
// SPDX-License-Identifier: Apache-2.0

// Package json stands in for a fork of encoding/json that Ignition 0.x uses because it remembers where in the text a value
// was. It is encoding/json without the positions: Ignition's messages about a config then name no line.
package json

import "encoding/json"

// Errors that Ignition tells from others.
type (
	SyntaxError        = json.SyntaxError
	UnmarshalTypeError = json.UnmarshalTypeError
)

// Unmarshal is that of encoding/json.
func Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// Node is any JSON value: a map[string]Node, a []Node or a literal.
type Node struct {
	// End and KeyEnd are positions, which are not known here.
	End, KeyEnd int
	Value       any
}

// UnmarshalJSON fills the tree.
func (n *Node) UnmarshalJSON(data []byte) error {
	switch data[0] {
	case '{':
		members := map[string]Node{}
		n.Value = members
		return json.Unmarshal(data, &members)
	case '[':
		entries := []Node{}
		err := json.Unmarshal(data, &entries)
		n.Value = entries
		return err
	default:
		return json.Unmarshal(data, &n.Value)
	}
}
